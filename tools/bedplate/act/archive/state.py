"""What an archive holds now, for people: mirrors, snapshots, suites, files."""

from dataclasses import dataclass

from bedplate.act.archive.mirror import stale
from bedplate.act.archive.place import ADDED, PUBLISHED, SNAPSHOT, Place
from bedplate.model.faults import BadInput
from bedplate.sources.site import Site


@dataclass(frozen=True)
class Row:
    """A line of the table: what it is, its name, its state."""

    what: str
    name: str
    state: str


def state(site: Site) -> list[Row]:
    """What archive.yml asks for and what there is of it; nothing is made or changed."""
    place = Place(site, site.archive)
    rows = [*_mirrors(place), *_made(place)]
    added = {(event.body["kind"], event.body["name"]): event for event in place.events(ADDED)}
    rows += [
        Row("file", f"{kind}/{name}", f"{event.body['size']} bytes, {event.body['sha256']}")
        for (kind, name), event in sorted(added.items())
    ]
    rows += [
        Row("file", f"{entry.kind}/{entry.name}", "not archived yet")
        for entry in place.definition.files.values()
        if (entry.kind, entry.name) not in added
    ]
    return rows


def _mirrors(place: Place) -> list[Row]:
    there = place.aptly.mirrors() if place.aptly.root.is_dir() else {}
    rows = []
    for mirror in place.definition.mirrors.values():
        for suite in mirror.suites:
            found = there.get(mirror.part(suite))
            try:
                asked = "" if not stale(place, mirror, suite) else "; archive.yml asks for other than that"
            except BadInput as fault:
                asked = f"; {fault}"
            updated = found.updated_at if found else None
            text = f"updated {updated}{asked}" if updated else "never completed"
            rows.append(Row("mirror", f"{mirror.name} {suite}", text))
    return rows


def _made(place: Place) -> list[Row]:
    snapshots = place.aptly.snapshots() if place.aptly.root.is_dir() else set()
    rows = []
    for event in place.events(SNAPSHOT):
        name = event.body["snapshot"]
        there = "" if name in snapshots else ", not there any more"
        rows.append(Row("snapshot", name, f"{event.body['packages']} packages, {event.at}{there}"))
    suites = place.suites()
    for event in place.events(PUBLISHED):
        name = event.body["suite"]
        there = "" if name in suites else ", not there any more"
        rows.append(
            Row("suite", name, f"snapshot {event.body['snapshot']}, InRelease {event.body['inrelease_sha256']}{there}")
        )
    return rows
