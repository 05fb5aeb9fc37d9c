"""Archiving a file besides packages: an ISO, a netboot kernel, a vendor's media, instructions.

Copied and hashed in one pass, named when it is whole; SHA256SUMS and the ledger have its hash. A name once used
keeps its bytes.
"""

import hashlib
import os
import tempfile
from dataclasses import dataclass
from pathlib import Path

from bedplate.act.archive.place import ADDED, Place, file_sha256, working
from bedplate.model.archive import Kind
from bedplate.model.faults import BadInput, Refused
from bedplate.sources.files import sync_directory
from bedplate.sources.site import Site, shown

CHUNK = 1 << 20


@dataclass(frozen=True)
class Added:
    path: Path
    kind: Kind
    sha256: str
    size: int
    did: bool


def add(site: Site, file: Path, kind: Kind, name: str | None = None) -> Added:
    """Archive a file.

    Raises:
        BadInput: it cannot be read, or archive.yml says another kind or sha256 of that name.
        Refused: the archive has other bytes of that name.
    """
    called = name or file.name
    if called.startswith(".") or "/" in called or any(not letter.isprintable() or letter == " " for letter in called):
        raise BadInput(f'"{called}" is no name of an archived file: no white space, no slash, no dot at its start')
    with working(site, "archive a file") as place:
        if not file.is_file():
            raise BadInput(f"{shown(file)}: no such file")
        target = place.directory / "files" / kind / called
        digest = file_sha256(target) if target.is_file() else None
        event = next((e for e in place.events(ADDED) if (e.body["kind"], e.body["name"]) == (kind, called)), None)
        part, found, size = _copied(file, target)
        try:
            _compare(place, called, kind, found)
            if event is not None and event.body["sha256"] != found:
                raise Refused(
                    f"{kind}/{called} was archived at {event.at} as {event.body['sha256']}, {file} is {found}"
                )
            whole = digest == found
            if not whole:  # not there, of a run that was killed, or damaged: these are the recorded bytes
                part.rename(target)
                sync_directory(target.parent)
        finally:
            part.unlink(missing_ok=True)
        if event is None or place.sums().get(f"files/{kind}/{called}") != found:
            sums = place.note_sum(target, found)
            body = {"name": called, "kind": kind.value, "sha256": found, "size": size, "sums_sha256": sums}
            place.record(ADDED, body)
    return Added(target, kind, found, size, did=event is None or not whole)


def _copied(file: Path, target: Path) -> tuple[Path, str, int]:
    """A whole copy beside the target, its sha256 and size."""
    target.parent.mkdir(parents=True, exist_ok=True)
    handle, name = tempfile.mkstemp(dir=target.parent, prefix=f".{target.name}.")
    digest, size = hashlib.sha256(), 0
    try:
        with os.fdopen(handle, "wb") as copy, file.open("rb") as source:
            while data := source.read(CHUNK):
                digest.update(data)
                size += copy.write(data)
            copy.flush()
            os.fchmod(copy.fileno(), 0o444)
            os.fsync(copy.fileno())
    except OSError as fault:
        Path(name).unlink(missing_ok=True)
        raise BadInput(f"{shown(file)} cannot be copied: {fault.strerror}") from fault
    except BaseException:
        Path(name).unlink(missing_ok=True)
        raise
    return Path(name), f"sha256:{digest.hexdigest()}", size


def _compare(place: Place, name: str, kind: Kind, found: str) -> None:
    """Refuse what archive.yml describes otherwise."""
    asked = place.definition.files.get(name)
    if asked is None:
        return
    at = next(i for i, entry in enumerate(place.definition.document.data["files"]) if entry["name"] == name)
    faults = []
    if asked.sha256 != found:
        what, remedy = f"{name} is to be {asked.sha256}, the file is {found}", "get the file again"
        faults.append(place.definition.document.fault(("files", at, "sha256"), what, remedy))
    if asked.kind is not kind:
        what, remedy = f"{name} is to be {asked.kind}, not {kind}", f"--kind {asked.kind}"
        faults.append(place.definition.document.fault(("files", at, "kind"), what, remedy))
    if faults:
        raise BadInput(faults)
