"""OpenPGP by gpg: what a key signed, and which secret key there is to sign with. Nothing secret is ever printed."""

import contextlib
import os
import re
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from bedplate.model.faults import BadInput
from bedplate.process import Finished, run

# What gpg's status lines say of a signature that is not good (gnupg doc/DETAILS), most telling first.
_STATUS = (
    ("BADSIG", "is not what was signed: it was altered after signing"),
    ("EXPKEYSIG", "is signed by a key that has expired"),
    ("REVKEYSIG", "is signed by a key that was revoked"),
    ("EXPSIG", "has a signature that has expired"),
    ("NO_PUBKEY", "is signed by another key"),
    ("ERRSIG", "has a signature that cannot be checked"),
    ("NODATA", "has no signature"),
)


@dataclass(frozen=True)
class Signed:
    """A signed text: `text` is what was signed, and nothing around it; `problem` is empty exactly if it is good."""

    text: str
    problem: str


class Keyring:
    """Public keys in a temporary home of their own; made by `keyring`."""

    def __init__(self, home: Path) -> None:
        self._home = home

    def signed(self, path: Path) -> Signed:
        """What a clear-signed file says, and whether one of the keys signed it."""
        text = self._home / "text"
        text.unlink(missing_ok=True)
        done = gpg(self._home, "--status-fd", "1", "--trust-model", "always", "--output", text, "--decrypt", path)
        said = text.read_text("utf-8", "replace") if text.is_file() else ""
        return Signed(said, _problem(done))

    def detached(self, signature: Path, path: Path) -> str:
        """What is wrong with a detached signature of a file; empty: nothing."""
        return _problem(gpg(self._home, "--status-fd", "1", "--trust-model", "always", "--verify", signature, path))

    def binary(self) -> bytes:
        """The keys in the form that gpgv reads."""
        target = self._home / "keys"
        target.unlink(missing_ok=True)
        gpg(self._home, "--output", target, "--export", check=True)
        return target.read_bytes()

    def fingerprints(self) -> frozenset[str]:
        return frozenset(_fingerprints(gpg(self._home, "--with-colons", "--list-keys", check=True).out, "pub"))


@contextlib.contextmanager
def keyring(key: bytes, shown: str) -> Iterator[Keyring]:
    """A keyring of one key file, armored or not.

    Raises:
        BadInput: it holds no public key.
    """
    with tempfile.TemporaryDirectory(prefix="bedplate-keys-") as name:
        home = Path(name)
        (home / "key").write_bytes(key)
        done = gpg(home, "--import", home / "key")
        ring = Keyring(home)
        if done.code or not ring.fingerprints():
            said = done.err.strip().splitlines()
            raise BadInput(f"{shown} holds no public key: {said[-1] if said else 'it is empty'}")
        yield ring


def secret_key(home: Path, user: str) -> str:
    """The fingerprint of the one secret key that a user ID or fingerprint means.

    Raises:
        BadInput: there is none, or several, or gpg cannot ask its agent.
    """
    listed = gpg(home, "--with-colons", "--list-secret-keys", user) if home.is_dir() else None
    if listed is not None and "connect to the agent" in listed.err:
        raise BadInput(f"{home}: gpg has no agent there: {_no_agent(home, listed)}")
    found = list(_fingerprints(listed.out if listed else "", "sec"))
    if len(found) != 1:
        many = f"{len(found)} secret keys: {', '.join(found)}" if found else "no secret key"
        remedy = "name one of them by its fingerprint" if found else "make or import it: docs/archive.md"
        raise BadInput(f"{home} has {many} for {user} ({remedy})")
    return found[0]


# The longest of the sockets that gpg-agent makes, and what the kernel takes for the path of one (unix(7)).
_SOCKET, _SOCKET_BYTES = "S.gpg-agent.browser", 107


def _no_agent(home: Path, listed: Finished) -> str:
    taken = len(bytes(home / _SOCKET))
    if taken > _SOCKET_BYTES:
        return f"its socket {_SOCKET} would have a path of {taken} bytes, {_SOCKET_BYTES} are possible (move it)"
    return listed.err.strip().splitlines()[0]


@contextlib.contextmanager
def signing(home: Path) -> Iterator[None]:
    """Ends the agent that gpg starts for a home, unless it ran before: then somebody unlocked a key in it."""
    environment = {**os.environ, "GNUPGHOME": str(home)}
    ran = run(["gpg-connect-agent", "--no-autostart", "/bye"], check=False, env=environment)
    before = ran.code == 0 and "no gpg-agent running" not in ran.err
    try:
        yield
    finally:
        if not before:
            run(["gpgconf", "--kill", "all"], check=False, env=environment)


def gpg(home: Path, *words: str | Path, check: bool = False) -> Finished:
    return run(
        ["gpg", "--batch", "--no-tty", "--homedir", home, *words], check=check, env={**os.environ, "LC_ALL": "C.UTF-8"}
    )


def _problem(done: Finished) -> str:
    words = {line.split()[1] for line in done.out.splitlines() if line.startswith("[GNUPG:] ")}
    for word, problem in _STATUS:
        if word in words:
            return problem
    if done.code == 0 and {"GOODSIG", "VALIDSIG"} <= words:
        return ""
    said = done.err.strip().splitlines()
    return f"cannot be checked: {said[-1] if said else f'gpg ended with {done.code}'}"


def _fingerprints(listing: str, record: str) -> Iterator[str]:
    """Of primary keys: the first fpr record after each pub or sec."""
    primary = False
    for line in listing.splitlines():
        fields = line.split(":")
        if fields[0] in ("pub", "sec"):
            primary = fields[0] == record
        elif fields[0] == "fpr" and primary and re.fullmatch(r"[0-9A-F]{40}|[0-9A-F]{64}", fields[9]):
            primary = False
            yield fields[9]
