"""The files of a site that a lock was made from: kept with the ledger when it is made, written back when they are lost.

So a ledger, its files, the archive and the registry are enough to make an environment again.
"""

import os
from collections.abc import Iterator
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path

from bedplate.act import image as images
from bedplate.act.ledgercopy import examine
from bedplate.act.lock import RESOLVED, of_event, recorded
from bedplate.decide.buildrecord import Stage, record_text
from bedplate.decide.chain import unjudged
from bedplate.decide.ledgerexport import Reading, read
from bedplate.decide.ledgerfiles import ATTACHED
from bedplate.decide.lockdoc import LockDocument, lock_text
from bedplate.decide.sitefiles import SiteFile, belongs, draft, files_of, last_of, record_of
from bedplate.ledger.filestore import FileStore
from bedplate.ledger.store import Ledger
from bedplate.model.event import Event
from bedplate.model.faults import BadInput
from bedplate.model.layers import Layer
from bedplate.sources.files import write_whole
from bedplate.sources.site import Site

ALWAYS = ("fleet.yml", "nodes.csv")
WHERE_THERE = ("accounts.yml", "archive.yml", "ledger.yml")
IMPORTED = f"image.{Stage.IMPORTED}"


class Written(StrEnum):
    """What became of a file."""

    WRITTEN = "written"
    THERE = "there already"
    DIFFERS = "differs, left as it is"
    REPLACED = "replaced"


@dataclass(frozen=True)
class Recovered:
    """One file of the site; path: relative to it."""

    path: str
    became: Written


def keep(site: Site, lock: LockDocument) -> Event | None:
    """Store the files that a lock was made from, and record them; None where that is on record.

    Raises:
        BadInput: one of them cannot be read.
    """
    store = FileStore(site.ledger_files_path)
    files = []
    for path in sorted(set(_paths(site, lock))):
        source = site.root / path
        stored = store.put(source)
        files.append(SiteFile(path, stored.sha256, stored.size, executable=os.access(source, os.X_OK)))
    said = draft(lock, files)
    with Ledger.open(site.ledger_url) as ledger:
        before = last_of(ledger.events(kinds=[ATTACHED], subject=f"environment:{lock.name}"), lock.identity)
        if before is not None and files_of(before) == files:
            return None
        return ledger.append(said)[0]


def recover(site: Site, names: tuple[str, ...], *, replace: bool) -> dict[str, list[Recovered]]:
    """Write back the files of environments, their locks and the build records of their images; no names: of all.

    What is there with other bytes is left, unless it is to be replaced. Of a file that several have, as fleet.yml, the
    one is written that was kept last.

    Raises:
        BadInput: the ledger does not have an environment, or not its files; the store lacks a file.
    """
    with Ledger.read(site.ledger_url) as ledger:
        locks = [of_event(event) for event in _locks(ledger, names)]
        kept = {lock.name: last_of(ledger.events(kinds=[ATTACHED]), lock.identity) for lock in locks}
        records = {lock.name: record_of(ledger.events(kinds=[IMPORTED]), lock) for lock in locks}
    if missing := [name for name, event in kept.items() if event is None]:
        raise BadInput(
            f"the ledger has no files of {', '.join(missing)}: they were locked before files were kept "
            "(where the files still are: bedplate lock NAME keeps them)"
        )
    store = FileStore(site.ledger_files_path)
    whole: dict[str, dict[str, tuple[bytes, bool]]] = {}
    latest: dict[str, tuple[int, str]] = {}  # path -> event that named it last, and the lock that it is of
    for lock in locks:
        event, record = kept[lock.name], records[lock.name]
        assert event is not None  # noqa: S101  refused above
        files = {one.path: (store.get(one.sha256).read_bytes(), one.executable) for one in files_of(event)}
        files[str(site.lock_path(lock.name).relative_to(site.root))] = lock_text(lock.document).encode(), False
        if record is not None:
            files[f"builds/{record.name}.json"] = record_text(record).encode(), False
        whole[lock.name] = files
        for path in files:
            latest[path] = max(latest.get(path, (0, "")), (event.id, lock.name))
    return {
        name: [
            Recovered(path, _put(site.root / path, data, executable=runs, replace=replace))
            for path, (data, runs) in files.items()
            if latest[path][1] == name
        ]
        for name, files in whole.items()
    }


def begin(root: Path, export: Path, files: Path) -> list[str]:
    """Write fleet and nodes of an export into an empty directory: with them it is a site that the rest goes into.

    Raises:
        BadInput: the export is damaged, or has none; the folder of files lacks them; others are there.
    """
    if damage := examine(export).damage:
        raise BadInput(f"{export}: damaged: {damage[0]} (all of it: bedplate ledger import --check {export})")
    with export.open("rb") as lines:
        event = last_of(unjudged(row) for row in read(lines, Reading()) if row.kind == ATTACHED.encode())
    there = {} if event is None else {one.path: one.sha256 for one in files_of(event)}
    if not there.keys() >= set(ALWAYS):
        raise BadInput(f"{root}: no site, and {export} has no fleet.yml of one (write it first: docs/site.md)")
    store = FileStore(files)
    whole = {path: store.get(there[path]).read_bytes() for path in ALWAYS}
    if other := [path for path, data in whole.items() if (root / path).exists() and (root / path).read_bytes() != data]:
        raise BadInput(f"{root}: has {', '.join(other)} with other bytes (import into an empty directory)")
    root.mkdir(parents=True, exist_ok=True)
    for path, data in whole.items():
        _put(root / path, data, executable=False, replace=False)
    return list(ALWAYS)


def _locks(ledger: Ledger, names: tuple[str, ...]) -> list[Event]:
    """The events that recorded locks: of names, or of every one."""
    if not names:
        first: dict[str, Event] = {}
        for event in ledger.events(kinds=[RESOLVED]):
            first.setdefault(str(event.body["environment"]), event)
        if not first:
            raise BadInput(f"ledger {ledger.name}: has no lock")
        return list(first.values())
    found = {name: recorded(ledger, name)[:1] for name in names}
    if unknown := [name for name, events in found.items() if not events]:
        raise BadInput(f"ledger {ledger.name}: has no lock of {', '.join(unknown)}")
    return [event for events in found.values() for event in events]


def _paths(site: Site, lock: LockDocument) -> Iterator[str]:
    """Every file of the site that a lock was made from, relative to the site."""
    yield from ALWAYS
    yield from (name for name in WHERE_THERE if (site.root / name).is_file())
    environment = site.environment(lock.name)
    definition = environment.layers[Layer.IMAGE].definition
    found = [site.environment_path(lock.name), site.key_path(environment.archive.key)]
    if site.ledger_site.signers is not None:
        found.append(site.root / Path(site.ledger_site.signers).expanduser())
    for kind in site.fleet.kinds.values():
        found += [site.model_path(kind.model), site.root / "models" / f"{kind.model}.health.yml"]
        found.append(site.acceptance_path(kind.model))
    if definition is not None:
        found += [path for path in site.image_path(definition).rglob("*") if path.is_file()]
        record = images.read(site, site.image(definition).name)
        beside = () if record is None else (record.provenance, record.sbom, record.log)
        found += [site.root / one.path for one in beside if one is not None]
    for path in found:
        if path.is_file() and path.is_relative_to(site.root) and belongs(str(path.relative_to(site.root))):
            yield str(path.relative_to(site.root))


def _put(path: Path, data: bytes, *, executable: bool, replace: bool) -> Written:
    became = Written.WRITTEN
    if path.exists():
        if path.read_bytes() == data:
            return Written.THERE
        if not replace:
            return Written.DIFFERS
        became = Written.REPLACED
    path.parent.mkdir(parents=True, exist_ok=True)
    write_whole(path, data, mode=0o755 if executable else 0o644)
    return became
