"""The logs of a delivery: whether the bytes are there that the record names, and into the ledger's files with them.

An installation's lie on the boot server (FOLDER/logs/NODE), an acceptance's in the site (acceptances/ID); the ledger's
files have what was kept. What lies anywhere under its name with other bytes is not there.
"""

from collections.abc import Iterable, Iterator, Sequence
from contextlib import suppress
from dataclasses import replace
from pathlib import Path

from bedplate.act.acceptance import FOLDER
from bedplate.decide.delivery import Log, Machine
from bedplate.decide.ledgerfiles import INSTALLATION_LOG, attaching
from bedplate.ledger.filestore import FileStore
from bedplate.ledger.store import Ledger
from bedplate.model.canonical import sha256
from bedplate.model.faults import BedplateError
from bedplate.sources.site import Site

KEPT = "the ledger's files"


def looked(site: Site, folder: Path, found: Iterable[Machine]) -> list[Machine]:
    """The same machines, with where the bytes of their logs are; folder: the boot server's."""
    store = FileStore(site.ledger_files_path)
    return [replace(machine, present=dict(_present(site, folder, store, machine))) for machine in found]


def keep(site: Site, folder: Path, found: Sequence[Machine], environment: str, identity: str) -> int:
    """Store the logs of machines that are not in the ledger's files yet, and record them; returns how many there were.

    Raises:
        BedplateError: the store cannot be written.
    """
    store = FileStore(site.ledger_files_path)
    drafts, count = [], 0
    for machine in found:
        by_role: dict[str, list[tuple[str, str, int]]] = {}
        for log in machine.files:
            if _kept(store, log.sha256):
                continue
            data = _read(_place(site, folder, machine, log), log.sha256)
            if data is not None:
                by_role.setdefault(log.role, []).append((log.name, store.put_bytes(data).sha256, len(data)))
        count += sum(map(len, by_role.values()))
        subjects = (f"environment:{environment}", f"node:{machine.node}")
        drafts += [attaching(role, of, subjects, identity) for role, of in by_role.items()]
    if drafts:
        with Ledger.open(site.ledger_url) as ledger:
            ledger.append(*drafts)
    return count


def _present(site: Site, folder: Path, store: FileStore, machine: Machine) -> Iterator[tuple[str, str]]:
    for log in machine.files:
        place = _place(site, folder, machine, log)
        if _kept(store, log.sha256):
            yield log.sha256, KEPT
        elif _read(place, log.sha256) is not None:
            yield log.sha256, str(place)


def _place(site: Site, folder: Path, machine: Machine, log: Log) -> Path:
    if log.role == INSTALLATION_LOG:
        return folder / "logs" / machine.node / log.name
    return site.root / FOLDER / machine.acceptance / log.name


def _kept(store: FileStore, digest: str) -> bool:
    with suppress(BedplateError):
        return store.get(digest).is_file()
    return False


def _read(place: Path, digest: str) -> bytes | None:
    """The bytes with that hash, if they lie there."""
    try:
        data = place.read_bytes()
    except OSError:
        return None
    # The inventories of before 2026-12 were hashed without the newline that stands behind them.
    return next((each for each in (data, data.removesuffix(b"\n")) if sha256(each) == digest), None)
