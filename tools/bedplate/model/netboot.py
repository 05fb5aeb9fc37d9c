"""Installation over the network: the `netboot` section of fleet.yml, and what of the vault a machine may get."""

import re
from dataclasses import dataclass
from ipaddress import IPv4Address
from typing import Annotated, Literal

from pydantic import AfterValidator, Field

from bedplate.model.canonical import DIGEST
from bedplate.model.faults import BadInput, Fault
from bedplate.model.schema import Strict, wrong
from bedplate.model.text import read_vault

_FILE = re.compile(r"[A-Za-z0-9][A-Za-z0-9._+-]*")
# No quotes, no ; and no $: a word of a kernel's command line means the same to GRUB, iPXE and the kernel.
_ARGUMENT = re.compile(r"[A-Za-z0-9][A-Za-z0-9=,._:/@+-]*")
_USER = re.compile(r"[a-z_][a-z0-9_-]{0,31}")
HASH_KEY, KEYS_KEY = "netboot_password_hash", "netboot_authorized_keys"


@dataclass(frozen=True)
class BootFile:
    """A file that machines fetch before they have a system: which bytes it has to be."""

    name: str
    sha256: str


@dataclass(frozen=True)
class Netboot:
    server: str
    port: int
    interface: str
    addressing: Literal["dhcp", "static"]
    live: Literal["casper", "live-boot"]
    """How the initrd finds its root: Ubuntu's installer (an ISO), or Debian's live-boot (a squashfs)."""
    image: BootFile
    kernel: BootFile
    initrd: BootFile
    source: str
    release: Literal["24.04", "26.04"]
    user: str
    locale: str
    timezone: str
    command_line: tuple[str, ...]

    @property
    def url(self) -> str:
        return f"http://{self.server}:{self.port}"


@dataclass(frozen=True)
class Secrets:
    """What a seed gets of the site's secrets: nothing that is secret by itself."""

    password_hash: str
    authorized_keys: tuple[str, ...]


def _server(value: str) -> str:
    try:
        IPv4Address(value)
    except ValueError:
        raise wrong(f'"{value}" is no IPv4 address', "four numbers from 0 to 255, with dots") from None
    return value


def _matching(pattern: re.Pattern[str], remedy: str) -> AfterValidator:
    def check(value: str) -> str:
        if not pattern.fullmatch(value):
            raise wrong(f'found "{value}"', remedy)
        return value

    return AfterValidator(check)


FileName = Annotated[str, _matching(_FILE, "a file's name: letters, digits and . _ + -")]
Digest = Annotated[str, _matching(DIGEST, "sha256: and 64 hexadecimal digits")]
Argument = Annotated[str, _matching(_ARGUMENT, "one word, without quotes, ; and $")]
Word = Annotated[str, _matching(re.compile(r"[A-Za-z0-9][A-Za-z0-9_.@/+-]*"), "one word")]


class _File(Strict):
    name: FileName
    sha256: Digest

    def value(self) -> BootFile:
        return BootFile(self.name, self.sha256)


class NetbootShape(Strict):
    """The section as it stands in fleet.yml."""

    server: Annotated[str, AfterValidator(_server)]
    port: Annotated[int, Field(ge=1, le=65535)] = 8080
    interface: Word
    addressing: Literal["dhcp", "static"] = "dhcp"
    live: Literal["casper", "live-boot"] = "casper"
    image: _File
    kernel: _File
    initrd: _File
    source: Word = "ubuntu-server-minimal"
    release: Literal["24.04", "26.04"] = "24.04"
    user: Annotated[str, _matching(_USER, "a user name: a-z, 0-9, _ and -")] = "ops"
    locale: Word = "C.UTF-8"
    timezone: Word = "Etc/UTC"
    command_line: list[Argument] | None = None

    def value(self) -> Netboot:
        given = self.model_dump() | {
            "image": self.image.value(), "kernel": self.kernel.value(), "initrd": self.initrd.value(),
            "command_line": tuple(self.command_line or ()),
        }  # fmt: skip
        return Netboot(**given)


def parse_secrets(text: str, file: str) -> Secrets:
    """What a decrypted vault says for seeds; its other keys are not looked at.

    Raises:
        BadInput: a key is missing, or is not what it should be. Values are never told.
    """
    document, data = read_vault(text, file)
    faults: list[Fault] = []
    password = data.get(HASH_KEY)
    if not isinstance(password, str) or not password or (HASH_KEY,) in document.doubted:
        faults.append(document.fault((HASH_KEY,), "no text", "a hash made with: openssl passwd -6; in quotes"))
    keys = data.get(KEYS_KEY)
    if not isinstance(keys, list) or not keys or not all(isinstance(key, str) and key.strip() for key in keys):
        faults.append(document.fault((KEYS_KEY,), "no list of public keys", "at least one line of id_ed25519.pub"))
    if faults:
        raise BadInput(faults)
    assert isinstance(password, str)  # noqa: S101
    return Secrets(password, tuple(key.strip() for key in keys or ()))
