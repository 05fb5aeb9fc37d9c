"""A ledger carried elsewhere: exported with its signed heads and files, and imported where it verifies."""

import os
import tempfile
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path

from bedplate.act.anchor import evidence
from bedplate.decide.chain import Damage
from bedplate.decide.ledgeranchor import Anchor
from bedplate.decide.ledgerexport import Reading, check, export, read
from bedplate.decide.ledgerfiles import ATTACHED, Attached, attached, attaching
from bedplate.ledger import signing
from bedplate.ledger.filestore import FileStore
from bedplate.ledger.store import Ledger
from bedplate.model.event import Event
from bedplate.model.faults import BadInput, BedplateError, Refused
from bedplate.sources.site import Site


@dataclass(frozen=True)
class Written:
    """An export: its events and anchors, and the files that went beside it."""

    events: int
    head: tuple[int, str]
    anchors: int
    files: int
    unknown: tuple[str, ...]


def write(site: Site, target: Path, *, files: Path | None) -> Written:
    """Export the ledger to a file that appears whole or not at all; files: a folder for those that it names.

    Raises:
        BadInput: the folder of target is not there; a file that the ledger names is missing.
        Damaged: an event is not what was recorded.
    """
    if not target.parent.is_dir():
        raise BadInput(f"{target}: no directory {target.parent}")
    with Ledger.read(site.ledger_url) as book:
        head = book.head()
        signed = evidence(site, book)
        anchors = sorted({one for held in signed.holdings for one in held.anchors}, key=lambda one: one.line())
        lines = export(site.fleet.site, head, book.events(until=head[0]), anchors)
        _write_whole(target, lines)
        named = list(attached(book.events(kinds=[ATTACHED], until=head[0]))) if files is not None else []
    if files is not None:
        _copy(FileStore(site.ledger_files_path), FileStore(files), named)
    return Written(head[0], head, len(anchors), len({one.sha256 for one in named}), signed.unknown)


def examine(source: Path) -> Reading:
    """Judge an export by itself.

    Raises:
        BadInput: it cannot be read.
    """
    try:
        with source.open("rb") as file:
            return check(file)
    except OSError as fault:
        raise BadInput(f"{source}: cannot be read: {fault.strerror}") from fault


def load(site: Site, source: Path, *, files: Path | None) -> tuple[Reading, list[Damage]]:
    """Import an export into the site's empty ledger; nothing is written unless all of it verifies.

    Returns what was read, and what is damaged: with that, nothing was imported.

    Raises:
        BadInput: it cannot be read.
        Refused: the ledger has events already.
    """
    with Ledger.read(site.ledger_url) as book:
        if (head := book.head()[0]) != 0:
            raise Refused(f"ledger {book.name}: has {head} events; an import needs an empty ledger")
    reading = examine(source)
    damage = [*reading.damage, *_wrong_anchors(site, reading)]
    if damage:
        return reading, damage
    with source.open("rb") as file, Ledger.open(site.ledger_url) as book:
        book.adopt(read(file, Reading()))
        if book.head() != reading.head:
            raise BedplateError(f"{source}: changed while it was imported (remove {book.name}, and import again)")
        named = list(attached(book.events(kinds=[ATTACHED])))
    if files is not None:
        _copy(FileStore(files), FileStore(site.ledger_files_path), named)
    return reading, []


def attach(
    site: Site,
    sources: list[Path],
    role: str,
    *,
    environment: str | None,
    identity: str | None,
    subjects: Iterable[str],
) -> Event:
    """Store files, then record them: an event never names a file that is not there.

    Raises:
        BadInput: a file cannot be read.
    """
    store = FileStore(site.ledger_files_path)
    stored = [(source.name, store.put(source)) for source in sources]
    named = [(_printable(name), one.sha256, one.size) for name, one in stored]
    about = (*subjects, *([f"environment:{environment}"] if environment else []))
    with Ledger.open(site.ledger_url) as book:
        return book.append(attaching(role, named, about, identity))[0]


def missing_files(site: Site, book: Ledger, *, whole: bool) -> Iterator[Damage]:
    """Files that events name and that are gone or damaged; whole: every one is hashed."""
    store = FileStore(site.ledger_files_path)
    for one in attached(book.events(kinds=[ATTACHED])):
        if why := store.wrong(one.sha256, one.size, whole=whole):
            yield Damage(one.event, f"{one.name}: {why}")


def _printable(name: str) -> str:
    return name.encode(errors="replace").decode()


def _wrong_anchors(site: Site, reading: Reading) -> Iterator[Damage]:
    """Anchors of an export that are not signed by one who may; asked of a site that names who may."""
    signers = site.ledger_site.signers
    if signers is None:
        return
    newest: Anchor | None = max(reading.anchors, key=lambda one: one.id, default=None)
    if newest is None:
        return
    path = site.root / Path(signers).expanduser()
    if why := signing.holds(newest.payload, newest.signature, principal=newest.principal, signers=path):
        yield Damage(None, f"anchor of event {newest.id}: its signature does not hold: {why}")


def _copy(source: FileStore, target: FileStore, named: Iterable[Attached]) -> None:
    for digest in sorted({one.sha256 for one in named}):
        target.put(source.get(digest))


def _write_whole(target: Path, lines: Iterable[bytes]) -> None:
    """As files.write_whole does, for what is larger than memory."""
    handle, name = tempfile.mkstemp(dir=target.parent, prefix=f".{target.name}.")
    try:
        with os.fdopen(handle, "wb", buffering=1 << 20) as file:
            for line in lines:
                file.write(line)
            file.flush()
            os.fchmod(file.fileno(), 0o600)
            os.fsync(file.fileno())
        Path(name).replace(target)
    except BaseException:
        Path(name).unlink(missing_ok=True)
        raise
