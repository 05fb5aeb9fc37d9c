"""Collecting what no lock refers to: suites, snapshots, and the packages that only they had.

The ledger is told first; a suite leaves dists/ by one rename. What a killed run leaves is garbage, and the next run
decides again from what is there.
"""

import os
import shutil
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path

from bedplate.act.archive.place import COLLECTED, PUBLISHED, SNAPSHOT, Place, working
from bedplate.act.archive.suite import packages_of
from bedplate.decide.archive import Held, Listed, Reference, Verdict, collection, reference
from bedplate.ledger.store import Ledger
from bedplate.model.faults import BadInput
from bedplate.sources.signature import keyring
from bedplate.sources.site import Site, shown

LOCKED = "lock.resolved"


@dataclass(frozen=True)
class Collected:
    """What was decided, and what left the served pool: its files and bytes."""

    verdicts: tuple[Verdict, ...]
    files: int
    size: int
    did: bool

    @property
    def going(self) -> list[Verdict]:
        return [verdict for verdict in self.verdicts if not verdict.stays]


def collect(site: Site, *, dry_run: bool, now: datetime | None = None) -> Collected:
    """Remove what nothing refers to (dry_run: say so only).

    Raises:
        BadInput: a lock cannot be read.
        Damaged: an index is not what was signed. While it is unknown what is needed, nothing is removed.
    """
    with working(site, "collect garbage") as place:
        listed = _listed(place)
        verdicts = _verdicts(place, listed, now or datetime.now(UTC))
        going = [verdict for verdict in verdicts if not verdict.stays]
        goes = {verdict.name for verdict in going if verdict.what == "suite"}
        kept = {path for suite, files in listed.items() if suite not in goes for path in files}
        loose = [path for path in _pool(place) if path.relative_to(place.public).as_posix() not in kept]
        size = sum(path.stat().st_size for path in loose)
        if dry_run:
            return Collected(tuple(verdicts), len(loose), size, did=False)
        trash = place.directory / "trash"
        shutil.rmtree(trash, ignore_errors=True)  # of a run that was killed
        if not going and not loose:
            return Collected(tuple(verdicts), 0, 0, did=False)
        body = {
            "suites": sorted(goes), "snapshots": sorted(v.name for v in going if v.what == "snapshot"),
            "kept": {f"{v.what} {v.name}": list(v.why) for v in verdicts if v.stays}, "files": len(loose),
            "size": size,
        }  # fmt: skip
        place.record(COLLECTED, body, *(f"{verdict.what}:{verdict.name}" for verdict in going))
        trash.mkdir()
        for suite in sorted(goes):
            place.suite_path(suite).rename(trash / suite)
        for path in loose:
            path.unlink()
        _drop(place, going)
        shutil.rmtree(trash)
    return Collected(tuple(verdicts), len(loose), size, did=True)


def references(site: Site) -> list[Reference]:
    """Every lock: those of the ledger, and those that lie in the site."""
    found = []
    with Ledger.read(site.ledger_url) as ledger:
        for event in ledger.events(kinds=[LOCKED]):
            source = f"lock {event.body.get('environment')} (event {event.id})"
            document = event.body.get("document")
            if not isinstance(document, dict):
                raise BadInput(f"{source} holds no document: nothing is collected")
            found.append(reference(source, document))
    found += [reference(f"lock {shown(site.lock_path(name))}", site.lock(name).document) for name in site.lock_names()]
    return found


def _verdicts(place: Place, listed: Mapping[str, Mapping[str, Listed]], now: datetime) -> list[Verdict]:
    site = place.site
    wishes: dict[str, list[str]] = {}
    for name in site.environment_names():
        suite = site.environment(name).archive.suite
        wishes.setdefault(suite, []).append(shown(site.environment_path(name)))
    made = {
        (e.kind, e.body["suite" if e.kind == PUBLISHED else "snapshot"]): e for e in place.events(PUBLISHED, SNAPSHOT)
    }
    suites = []
    for name, files in listed.items():
        event = made.get((PUBLISHED, name))
        packages = frozenset(file.sha256 for file in files.values())
        suites.append(
            Held(
                name, _time(event.at) if event else None, packages,
                event.body["snapshot"] if event else "", event.body["inrelease_sha256"] if event else "",
            )
        )  # fmt: skip
    snapshots = [
        Held(name, _time(event.at), frozenset(p.sha256 for p in place.aptly.packages("snapshot", name)))
        for name in sorted(place.aptly.snapshots())
        if (event := made.get((SNAPSHOT, name))) is not None
    ]
    return collection(
        suites, snapshots, references(site), wishes, now=now, keep_days=place.definition.keep_days
    )  # fmt: skip


def _time(at: str) -> datetime:
    return datetime.fromisoformat(at)


def _listed(place: Place) -> dict[str, dict[str, Listed]]:
    """Suite -> the files of the pool that it lists; one altered digit in an index would make a package garbage."""
    with keyring(place.signing_key, place.definition.signing_key) as keys:
        return {suite: packages_of(keys, place.suite_path(suite)) for suite in place.suites()}


def _pool(place: Place) -> list[Path]:
    return [
        Path(folder) / name for folder, _, names in os.walk(place.public / "pool") for name in sorted(names)
    ]  # fmt: skip


def _drop(place: Place, going: list[Verdict]) -> None:
    """Aptly's side: suites, snapshots, then the files that nothing of it refers to."""
    published = place.aptly.published()
    for verdict in going:
        if verdict.what == "suite" and verdict.name in published:
            place.aptly.run("publish", "drop", "-force-drop", verdict.name)
    published = place.aptly.published()
    for verdict in going:
        if verdict.what != "snapshot":
            continue
        for suite in sorted(suite for suite, snapshot in published.items() if snapshot == verdict.name):
            place.aptly.run("publish", "drop", "-force-drop", suite)  # staged, and never seen
        place.aptly.run("snapshot", "drop", "-force", verdict.name)
    place.aptly.run("db", "cleanup")
