"""Logs of nodes into the ledger's files, as soon as there are any: content-addressed, and named by an event."""

from collections.abc import Iterable, Mapping
from pathlib import Path

from bedplate.decide.ledgerfiles import attaching
from bedplate.ledger.filestore import FileStore
from bedplate.model.event import Draft
from bedplate.model.faults import BedplateError
from bedplate.sources.site import Site


def kept(
    site: Site, folder: Path, logs: Mapping[str, str], *, role: str, subjects: Iterable[str], identity: str | None
) -> list[Draft]:
    """Store files of a folder; the event that names those that are stored, if one is.

    logs: name in the folder -> sha256. One that is not there, has other bytes, or cannot be stored is left out: what
    the logs are of is recorded all the same, and `bedplate delivery` says that this log is missing.
    """
    store, files = FileStore(site.ledger_files_path), list[tuple[str, str, int]]()
    for name, digest in sorted(logs.items()):
        try:
            stored = store.put(folder / name)
        except BedplateError:
            continue
        if stored.sha256 == digest:
            files.append((name, stored.sha256, stored.size))
    return [attaching(role, files, subjects, identity)] if files else []
