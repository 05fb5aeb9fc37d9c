"""Installation over the network: the `netboot` section of fleet.yml, and what of the vault a machine may get."""

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
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
# A path that means the same to curtin, fstab and a shell; a first letter, so that no part is . or ..
_MOUNT = re.compile(r"(/[A-Za-z0-9_][A-Za-z0-9_.-]*)+")
_MOUNT_BYTES = 200
# What a system needs before data disks are there, or has files of its own in; nothing is mounted over it.
_SYSTEM = ("/bin", "/boot", "/dev", "/etc", "/lib", "/lib32", "/lib64", "/proc", "/run", "/sbin", "/sys", "/usr")
_SYSTEM_ONLY = ("/root", "/tmp", "/var", "/var/lib", "/var/log", "/var/tmp")  # noqa: S108  directories below are free
HASH_KEY, KEYS_KEY = "netboot_password_hash", "netboot_authorized_keys"


@dataclass(frozen=True)
class BootFile:
    """A file that machines fetch before they have a system: which bytes it has to be."""

    name: str
    sha256: str


@dataclass(frozen=True)
class DataDisks:
    """What an installation makes of the data disks of a kind of nodes.

    It stands in fleet.yml and not in the hardware model: how many disks a machine has is its vendor's matter, whether
    they may be wiped is the site's. Models are copied from site to site, and a wipe must not come with one.
    """

    array: Literal["raid0", "none"]
    """One file system striped over all of them, or one on each."""
    filesystem: Literal["ext4", "xfs"]
    path: str
    """Where it is mounted; several without an array: PATH/0, PATH/1, in the order of data_disk_serials."""
    wipe: bool
    """False: nothing is formatted; what an earlier installation made there is mounted again."""


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
    data_disks: Mapping[str, DataDisks] = field(default_factory=dict)
    """By kind; the data disks of other kinds are not touched."""

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


def _mount_point(value: str) -> str:
    if not _MOUNT.fullmatch(value) or len(value) > _MOUNT_BYTES:
        raise wrong(f'found "{value}"', "an absolute path: letters, digits and _ . -, for example /data")
    below = next((name for name in _SYSTEM if value == name or value.startswith(f"{name}/")), None)
    if below or value in _SYSTEM_ONLY:
        raise wrong(f'"{value}" belongs to the system itself', "a directory for data, for example /data")
    return value


FileName = Annotated[str, _matching(_FILE, "a file's name: letters, digits and . _ + -")]
Digest = Annotated[str, _matching(DIGEST, "sha256: and 64 hexadecimal digits")]
Argument = Annotated[str, _matching(_ARGUMENT, "one word, without quotes, ; and $")]
Word = Annotated[str, _matching(re.compile(r"[A-Za-z0-9][A-Za-z0-9_.@/+-]*"), "one word")]


class _File(Strict):
    name: FileName
    sha256: Digest

    def value(self) -> BootFile:
        return BootFile(self.name, self.sha256)


class _DataDisks(Strict):
    # No key has a default: each of them is a decision about somebody's data.
    array: Literal["raid0", "none"]
    filesystem: Literal["ext4", "xfs"]
    path: Annotated[str, AfterValidator(_mount_point)]
    wipe: bool

    def value(self) -> DataDisks:
        return DataDisks(self.array, self.filesystem, self.path, self.wipe)


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
    data_disks: dict[str, _DataDisks] | None = None

    def value(self) -> Netboot:
        given = self.model_dump() | {
            "image": self.image.value(), "kernel": self.kernel.value(), "initrd": self.initrd.value(),
            "command_line": tuple(self.command_line or ()),
            "data_disks": {kind: asked.value() for kind, asked in (self.data_disks or {}).items()},
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
