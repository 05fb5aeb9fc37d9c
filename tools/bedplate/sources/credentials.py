"""Credentials for registries, from the files in which Docker, podman, skopeo and Enroot keep them.

- The first file that names the registry counts; in it the most specific entry: HOST/PATH/…, then HOST.
- What is kept elsewhere (a credential helper, an identity token) is named as not read, never skipped in silence.
- A password stands in no message and no `repr`.

Example:
    found = look_up("nvcr.io", "nvidia/pytorch", auth_files())
    found.credentials and found.credentials.origin   # entry "nvcr.io" in /root/.docker/config.json
    found.not_read                                   # what names the registry and cannot be read
"""

import base64
import binascii
import json
import os
import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from bedplate.decide.reference import HUB, HUB_NAMES
from bedplate.model.faults import BadInput

ENROOT_FILE = ".credentials"
_VARIABLE = re.compile(r"\$(?:\{([A-Za-z_][A-Za-z0-9_]*)\}|([A-Za-z_][A-Za-z0-9_]*))")


@dataclass(frozen=True)
class Credentials:
    """For one registry; `origin` says in messages where they came from. enroots: skopeo does not know them."""

    username: str
    password: str
    origin: str
    enroots: bool = False

    def __repr__(self) -> str:
        return f"Credentials({self.origin})"

    @property
    def basic(self) -> str:
        return "Basic " + self.encoded

    @property
    def encoded(self) -> str:
        return base64.b64encode(f"{self.username}:{self.password}".encode()).decode()


@dataclass(frozen=True)
class Found:
    """What the files say of a registry; not_read: entries that name it and hold no password."""

    credentials: Credentials | None
    not_read: tuple[str, ...] = ()


def auth_files() -> list[Path]:
    """Where credentials may stand: containers-auth.json(5), then Docker's old file, then Enroot's."""
    if named := os.environ.get("REGISTRY_AUTH_FILE"):
        return [Path(named)]
    home = Path.home()
    run = os.environ.get("XDG_RUNTIME_DIR")
    config = os.environ.get("XDG_CONFIG_HOME")
    docker = os.environ.get("DOCKER_CONFIG")
    return [
        (Path(run) if run else Path(f"/run/containers/{os.getuid()}"))
        / ("containers/auth.json" if run else "auth.json"),
        (Path(config) if config else home / ".config") / "containers" / "auth.json",
        (Path(docker) if docker else home / ".docker") / "config.json",
        home / ".dockercfg",
        enroot_file(),
    ]


def enroot_file() -> Path:
    if named := os.environ.get("ENROOT_CONFIG_PATH"):
        return Path(named) / ENROOT_FILE
    config = os.environ.get("XDG_CONFIG_HOME")
    return (Path(config) if config else Path.home() / ".config") / "enroot" / ENROOT_FILE


def look_up(host: str, path: str, files: Sequence[Path]) -> Found:
    """What the files know of a registry, for one repository in it.

    Raises:
        BadInput: a file cannot be read, or the entry in it is damaged.
    """
    not_read: list[str] = []
    for file in files:
        try:
            text = file.read_text()
        except (FileNotFoundError, NotADirectoryError):
            continue
        except (OSError, ValueError) as fault:
            raise BadInput(f"cannot read the credentials in {file}: {type(fault).__name__}") from None
        read: Callable[[str, str, str, Path], Found] = _enroots if file.name == ENROOT_FILE else _containers
        found = read(text, host, path, file)
        not_read += found.not_read
        if found.credentials:
            return Found(found.credentials, tuple(not_read))
    return Found(None, tuple(not_read))


def _containers(text: str, host: str, path: str, file: Path) -> Found:
    """auth.json and config.json: {auths: {KEY: {auth}}, credHelpers: {HOST: NAME}, credsStore: NAME}."""
    try:
        document = json.loads(text)
        entries = document if file.name == ".dockercfg" else document.get("auths", {})
        helpers = document.get("credHelpers") or {}
        store = document.get("credsStore")
    except (ValueError, AttributeError) as fault:
        raise BadInput(f"cannot read the credentials in {file}: {type(fault).__name__}") from None
    not_read = []
    for key, entry in _fitting(entries if isinstance(entries, dict) else {}, host, path):
        origin = f'entry "{key}" in {file}'
        if isinstance(entry, dict) and (encoded := entry.get("auth")):
            return Found(_decoded(encoded, origin))
        if isinstance(entry, dict) and (
            kind := next((k for k in ("identitytoken", "registrytoken") if k in entry), "")
        ):
            not_read.append(f"{origin} has an {kind} and no password")
        elif store:
            not_read.append(f'{origin} is kept by the credential helper "docker-credential-{store}"')
    named = (
        next((helpers[key] for key in _keys(host, "") if key in helpers), None) if isinstance(helpers, dict) else None
    )
    if named:
        not_read.append(f'{file} leaves {host} to the credential helper "docker-credential-{named}"')
    return Found(None, tuple(not_read))


def _fitting(entries: dict[str, Any], host: str, path: str) -> Iterator[tuple[str, Any]]:
    """Entries for a repository, the most specific first; Docker has written keys as addresses: https://HOST/v1/."""
    plain = {re.sub(r"^https?://|(?<=[^/])/(v[12]/?)?$", "", key): (key, entry) for key, entry in entries.items()}
    for key in _keys(host, path):
        if key in plain:
            yield plain[key]


def _keys(host: str, path: str) -> list[str]:
    keys = [f"{host}/{path}".rstrip("/")]
    while "/" in keys[-1]:
        keys.append(keys[-1].rpartition("/")[0])
    if host in HUB_NAMES:
        keys += [*(name for name in HUB_NAMES if name not in keys), "index.docker.io/v1"]
    return keys


def _decoded(encoded: str, origin: str) -> Credentials:
    try:
        name, colon, password = base64.b64decode(encoded, validate=True).decode().partition(":")
    except (binascii.Error, UnicodeDecodeError, TypeError):
        colon = ""
    if not colon:
        raise BadInput(f"{origin} is damaged (log in again: skopeo login)")
    return Credentials(name, password, origin)


def machines(text: str) -> dict[str, tuple[int, str, str | None]]:
    """The lines of Enroot's file, by machine: line, login, password. Enroot greps: all of it stands on one line."""
    found: dict[str, tuple[int, str, str | None]] = {}
    for number, line in enumerate(text.splitlines(), 1):
        words = line.split()
        if words[:1] == ["machine"] and words[2:3] == ["login"] and len(words) > 3:  # noqa: PLR2004
            found.setdefault(
                words[1], (number, words[3], words[5] if words[4:5] == ["password"] and words[5:] else None)
            )
    return found


def _enroots(text: str, host: str, _path: str, file: Path) -> Found:
    """A line `machine HOST login USER password PASSWORD`; src/docker.sh looks HOST up without its port."""
    names = [HUB, *HUB_NAMES] if host in HUB_NAMES else [host.rpartition(":")[0] or host, host]
    known = machines(text)
    for name in names:
        if name not in known:
            continue
        line, login, password = known[name]
        origin = f'machine "{name}", {file}:{line}'
        if password is None:
            return Found(None, (f"{origin} has no password on the same line",))
        # src/common.sh evaluates a password that begins with $; a login is taken as it is ($oauthtoken of NGC).
        if variable := _VARIABLE.fullmatch(password):
            value = os.environ.get(variable[1] or variable[2])
            if value is None:
                return Found(
                    None, (f"{origin} takes its password from ${variable[1] or variable[2]}, which is not set",)
                )
            password = value
        elif password.startswith("$"):
            return Found(None, (f"{origin} has its password computed by a shell",))
        return Found(Credentials(login, password, origin, enroots=True))
    return Found(None)
