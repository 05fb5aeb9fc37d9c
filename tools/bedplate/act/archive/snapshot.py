"""Freezing the archive: one name for all packages that mirrors and team supply now, for good.

The order makes a killed run harmless: aptly's snapshot, the list of its packages, SHA256SUMS, the ledger. What
the ledger does not know is no snapshot yet, and the next run makes it again.
"""

import re
from collections.abc import Sequence
from dataclasses import dataclass

from bedplate.act.archive.mirror import ensure_incoming, stale
from bedplate.act.archive.place import SNAPSHOT, Place, working
from bedplate.decide.archive import FIGHTS_SHOWN, Package, Part, fights, members, package_list
from bedplate.model.archive import INCOMING
from bedplate.model.canonical import sha256
from bedplate.model.event import Event
from bedplate.model.faults import BadInput, Fault, Refused
from bedplate.sources.files import write_whole
from bedplate.sources.site import Site

NAME = re.compile(r"[A-Za-z0-9]([A-Za-z0-9._-]{0,62}[A-Za-z0-9])?")  # also a suite, and a file's name


@dataclass(frozen=True)
class Made:
    name: str
    parts: tuple[Part, ...]
    packages: tuple[Package, ...]
    list_sha256: str


def snapshot(site: Site, name: str) -> Made:
    """Freeze what mirrors and team supply now.

    Raises:
        BadInput: the name is none; a mirror was never completed; a package comes from two sources.
        Refused: the name was used before: it is never changed.
    """
    check_name(name)
    with working(site, "make a snapshot") as place:
        if event := made(place, name):
            raise Refused(_holds(name, event))
        _refuse_stale(place)
        parts = _parts(place, name)
        if fighting := fights(parts, place.definition.shared):
            _drop_parts(place, name)
            raise BadInput(_fighting(place, fighting))
        packages = members(parts)
        if not packages:
            _drop_parts(place, name)
            raise BadInput(f"snapshot {name} would hold no package (run: bedplate archive mirror)")
        if name in place.aptly.snapshots():  # of a run that was killed: nobody was told of it
            place.aptly.run("snapshot", "drop", "-force", name)
        place.aptly.run("snapshot", "merge", "-no-remove", name, *(_part_name(name, part) for part in parts))
        if place.aptly.packages("snapshot", name) != packages:
            raise BadInput(f"aptly's snapshot {name} holds other packages than its sources: nothing was recorded")
        _drop_parts(place, name)
        data = package_list(name, parts)
        write_whole(place.list_path(name), data)
        sums = place.note_sum(place.list_path(name), sha256(data))
        body = {
            "snapshot": name, "packages": len(packages), "list_sha256": sha256(data), "sums_sha256": sums,
            "sources": [{"source": p.source, "suite": p.suite, "packages": len(p.packages)} for p in parts],
        }  # fmt: skip
        place.record(SNAPSHOT, body, f"snapshot:{name}")
    return Made(name, tuple(parts), packages, sha256(data))


def check_name(name: str) -> None:
    if not NAME.fullmatch(name):
        raise BadInput(f'"{name}" is no name of a snapshot or suite: letters, digits, and . _ - inside')


def made(place: Place, name: str) -> Event | None:
    """The event that made a snapshot."""
    return next((event for event in place.events(SNAPSHOT) if event.body["snapshot"] == name), None)


def sources_text(sources: Sequence[dict[str, object]]) -> str:
    return ", ".join(f"{s['packages']} of {s['source']}" + (f" {s['suite']}" if s["suite"] else "") for s in sources)


def _holds(name: str, event: Event) -> str:
    body = event.body
    return (
        f"snapshot {name} was made at {event.at} by {event.actor} and is never changed: it holds {body['packages']}"
        f" packages ({sources_text(body['sources'])}), list {body['list_sha256']}: choose another name"
    )


def _refuse_stale(place: Place) -> None:
    faults = [
        place.definition.document.fault(
            ("mirrors", name),
            f"{suite} was never completed as it is asked for here",
            f"run: bedplate archive mirror {name}",
        )
        for name, mirror in place.definition.mirrors.items()
        for suite in mirror.suites
        if stale(place, mirror, suite)
    ]
    if faults:
        raise BadInput(faults)


def _part_name(name: str, part: Part) -> str:
    return f"{_prefix(name)}{part.source}@{part.suite or ''}"


def _prefix(name: str) -> str:
    return f".part {name} "  # no snapshot's name begins with a dot


def _drop_parts(place: Place, name: str) -> None:
    for part in sorted(place.aptly.snapshots()):
        if part.startswith(_prefix(name)):
            place.aptly.run("snapshot", "drop", "-force", part)


def _parts(place: Place, name: str) -> list[Part]:
    """Freeze each source by itself, and read what it gives."""
    ensure_incoming(place)
    _drop_parts(place, name)
    states = place.aptly.mirrors()
    parts = []
    for mirror in place.definition.mirrors.values():
        for suite in mirror.suites:
            state = states[mirror.part(suite)]
            part = Part(mirror.name, suite, (), state.updated_at)
            place.aptly.run("snapshot", "create", _part_name(name, part), "from", "mirror", state.name)
            parts.append(part)
    part = Part(INCOMING, None, ())
    place.aptly.run("snapshot", "create", _part_name(name, part), "from", "repo", INCOMING)
    parts.append(part)
    return [
        Part(part.source, part.suite, place.aptly.packages("snapshot", _part_name(name, part)), part.updated_at)
        for part in parts
    ]


def _fighting(place: Place, fighting: Sequence[str]) -> list[Fault]:
    more = len(fighting) - FIGHTS_SHOWN
    faults = [
        place.definition.document.fault(
            ("mirrors",), f"two sources supply {text}", "`exclude` it in one of them, or name it in `shared` with why"
        )
        for text in fighting[:FIGHTS_SHOWN]
    ]
    if more > 0:
        faults.append(place.definition.document.fault(("mirrors",), f"two sources supply {more} names more"))
    return faults
