"""An archive's directory: what lies where, who may work on it, and what the ledger knows of it.

DIRECTORY/aptly/      aptly's own: its database, its pool, and what it publishes, which is not served
DIRECTORY/public/     dists/ and pool/: what is served
DIRECTORY/incoming/   packages that the team built, until they are brought in
DIRECTORY/files/      KIND/NAME: ISOs, kernels, media, instructions
DIRECTORY/snapshots/  NAME.json: the packages of each snapshot, with their hashes
DIRECTORY/mirrors/    what each mirror was asked for when it was last completed
DIRECTORY/SHA256SUMS  checksums of files/ and snapshots/; the ledger has the checksum of this list
DIRECTORY/gnupg/      the keyring with the signing key, for its owner alone
"""

import contextlib
import hashlib
import os
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

from bedplate.decide.archive import checksum_text, checksums
from bedplate.filelock import alone
from bedplate.ledger.store import Ledger
from bedplate.model.archive import ArchiveDefinition
from bedplate.model.canonical import sha256
from bedplate.model.event import Draft, Event
from bedplate.model.faults import BadInput
from bedplate.sources.aptly import Aptly
from bedplate.sources.files import write_whole
from bedplate.sources.site import Site, shown

MIRRORED, SNAPSHOT, PUBLISHED = "archive.mirrored", "archive.snapshot", "archive.published"
COLLECTED, VERIFIED, ADDED = "archive.collected", "archive.verified", "archive.added"
KEPT = ("files", "snapshots")  # the directories whose files SHA256SUMS lists


@dataclass(frozen=True)
class Place:
    """An archive of a site, on disk."""

    site: Site
    definition: ArchiveDefinition

    @property
    def directory(self) -> Path:
        return Path(self.definition.directory)

    @property
    def public(self) -> Path:
        return self.directory / "public"

    @property
    def incoming(self) -> Path:
        return self.directory / "incoming"

    @property
    def sums_path(self) -> Path:
        return self.directory / "SHA256SUMS"

    @cached_property
    def aptly(self) -> Aptly:
        return Aptly(self.directory / "aptly", self.directory / "gnupg", self.definition.architectures)

    @cached_property
    def signing_key(self) -> bytes:
        """The public key that nodes know the archive by."""
        return self.key(self.definition.signing_key, ("signing", "key"))

    def key(self, name: str, at: tuple[str, ...]) -> bytes:
        """A public key of the site; its absence is a fault of archive.yml."""
        path = self.site.key_path(name)
        try:
            return path.read_bytes()
        except OSError as fault:
            found = f"{shown(path)} cannot be read: {fault.strerror}"
            raise BadInput([self.definition.document.fault(at, found, "put the public key there")]) from fault

    def list_path(self, snapshot: str) -> Path:
        return self.directory / "snapshots" / f"{snapshot}.json"

    def suite_path(self, suite: str) -> Path:
        return self.public / "dists" / suite

    def suites(self) -> list[str]:
        """The suites that are served; hidden ones are half-written."""
        folder = self.public / "dists"
        found = folder.iterdir() if folder.is_dir() else ()
        return sorted(path.name for path in found if not path.name.startswith("."))

    def sums(self) -> dict[str, str]:
        """What SHA256SUMS lists.

        Raises:
            ValueError: it is damaged.
        """
        return checksums(self.sums_path.read_text()) if self.sums_path.exists() else {}

    def note_sum(self, path: Path, digest: str) -> str:
        """Add a file to SHA256SUMS; the new checksum of the list itself."""
        listed = self.sums() | {path.relative_to(self.directory).as_posix(): digest}
        text = checksum_text(listed)
        write_whole(self.sums_path, text)
        return sha256(text.encode())

    # --- the ledger ---------------------------------------------------------------------------

    def events(self, *kinds: str) -> list[Event]:
        """The archive's events of these kinds, oldest first."""
        with contextlib.closing(Ledger.read(self.site.ledger_url)) as ledger:
            return list(ledger.events(kinds=kinds, subject=f"archive:{self.definition.name}"))

    def record(self, kind: str, body: Mapping[str, Any], *subjects: str) -> Event:
        with contextlib.closing(Ledger.open(self.site.ledger_url)) as ledger:
            about = {"archive": self.definition.name}
            return ledger.append(Draft(kind, (f"archive:{self.definition.name}", *subjects), about | dict(body)))[0]


@contextlib.contextmanager
def working(site: Site, doing: str) -> Iterator[Place]:
    """The archive, for one process at a time; its directories are made where they are not there.

    Raises:
        Refused: the site is an example.
        Busy: another process works on it.
    """
    site.refuse_example(doing)
    place = Place(site, site.archive)
    umask = os.umask(0o022)  # the web server reads what is published, whatever the umask of the person
    try:
        with _one_at_a_time(place):
            yield place
    finally:
        os.umask(umask)


@contextlib.contextmanager
def _one_at_a_time(place: Place) -> Iterator[None]:
    busy = f"another process works on {place.directory}: try again when it has ended"
    with contextlib.ExitStack() as held:
        try:
            place.directory.mkdir(parents=True, exist_ok=True)
            for name in ("aptly", "public/dists", "public/pool", "incoming", "files", "snapshots", "mirrors"):
                (place.directory / name).mkdir(parents=True, exist_ok=True)
            held.enter_context(alone(place.directory / ".lock", busy, mode=0o644))
        except OSError as fault:
            found = f"{fault.filename}: {fault.strerror}"
            remedy = "run this on the archive's host, as the owner of its directory"
            raise BadInput([place.definition.document.fault(("directory",), found, remedy)]) from fault
        yield


def file_sha256(path: Path) -> str:
    """The sha256 of a file of any size."""
    with path.open("rb") as file:
        return "sha256:" + hashlib.file_digest(file, "sha256").hexdigest()
