"""Files of a site that an environment was locked from, as the record has them: to write them back where they are lost.

What is secret is none of them, nor what a site makes anew (keys of hosts, artifacts).
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import PurePosixPath
from typing import Any

from bedplate.decide.buildrecord import BuildRecord, Stage, read_record
from bedplate.decide.ledgerfiles import ATTACHED, SITE
from bedplate.decide.lockdoc import LockDocument
from bedplate.model.event import Draft, Event
from bedplate.model.faults import BadInput

NEVER = frozenset({"secrets", "ledger-files"})  # folders of a site of which the record has nothing


@dataclass(frozen=True)
class SiteFile:
    """path: relative to the site."""

    path: str
    sha256: str
    size: int
    executable: bool = False


def belongs(path: str) -> bool:
    """Whether a file is one of the site that may be kept, and written back: nothing outside, nothing secret."""
    parts = PurePosixPath(path).parts
    return bool(parts) and not path.startswith("/") and ".." not in parts and parts[0] not in NEVER


def draft(lock: LockDocument, files: Sequence[SiteFile]) -> Draft:
    """The event that says which files a lock was made from."""
    said = [
        {"name": one.path, "sha256": one.sha256, "size": one.size} | ({"executable": True} if one.executable else {})
        for one in sorted(files, key=lambda one: one.path)
    ]
    return Draft(ATTACHED, (f"environment:{lock.name}",), {"role": SITE, "files": said}, lock.identity)


def files_of(event: Event) -> list[SiteFile]:
    """The files that such an event names.

    Raises:
        BadInput: one of them lies outside a site.
    """
    found = [
        SiteFile(str(one["name"]), str(one["sha256"]), int(one["size"]), executable=bool(one.get("executable")))
        for one in event.body.get("files", ())
    ]
    if wrong := [one.path for one in found if not belongs(one.path)]:
        raise BadInput(f"event {event.id} of the ledger names no files of a site: {', '.join(wrong)}")
    return found


def last_of(events: Iterable[Event], identity: str | None = None) -> Event | None:
    """The last event of the files of a lock; without an identity, of any."""
    found = None
    for event in events:
        if event.kind == ATTACHED and event.body.get("role") == SITE and identity in (None, event.environment):
            found = event
    return found


def record_of(events: Iterable[Event], lock: LockDocument) -> BuildRecord | None:
    """The build record of a lock's image as the ledger has it: of the squashfs that the lock names."""
    found: dict[str, Any] | None = None
    for event in events:
        if lock.image is None or event.kind != f"image.{Stage.IMPORTED}":
            continue
        body = dict(event.body)
        made = (body.get("squashfs") or {}).get("sha256")
        if (body.get("manifest_digest"), made) == (lock.image.manifest_digest, lock.image.squashfs_sha256):
            found = body
    return None if found is None else read_record(found, "the ledger")
