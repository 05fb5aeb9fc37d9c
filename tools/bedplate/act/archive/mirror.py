"""Bringing mirrors up to date, and in what the team built.

An interrupted run leaves every mirror as it was: aptly takes over a suite's new state when all of its files are
there, and what was downloaded is not downloaded again. What was asked of a mirror is noted when it is complete.
"""

import json
from collections.abc import Callable, Collection
from dataclasses import dataclass

from bedplate.act.archive.place import MIRRORED, Place, working
from bedplate.model.archive import INCOMING, Mirror
from bedplate.model.faults import BadInput, Fault
from bedplate.process import ProcessFailed
from bedplate.sources.aptly import MIRROR_S, MirrorState
from bedplate.sources.files import write_whole
from bedplate.sources.signature import keyring
from bedplate.sources.site import Site

Say = Callable[[str], None]


@dataclass(frozen=True)
class Row:
    """One suite of a mirror, or what came in: how many packages it has now; why: what went wrong."""

    source: str
    suite: str | None
    packages: int
    why: str = ""


def mirror(site: Site, names: Collection[str] = (), *, say: Say) -> list[Row]:
    """Bring mirrors (none named: all, and what is incoming) up to date, and record it.

    Raises:
        BadInput: a mirror is not known, or could not be brought up to date; the others were.
    """
    with working(site, "mirror packages") as place:
        known = [*place.definition.mirrors, INCOMING]
        if unknown := sorted(set(names) - set(known)):
            raise BadInput(f"no mirror {', '.join(unknown)} in archive.yml (known: {', '.join(known)})")
        chosen = [name for name in known if not names or name in names]
        rows: list[Row] = []
        faults: list[Fault] = []
        for name in chosen:
            if name == INCOMING:
                rows.append(_incoming(place, faults, say))
                continue
            entry = place.definition.mirrors[name]
            rows += [_suite(place, entry, suite, faults, say) for suite in entry.suites]
        body = {"sources": [
            {"source": row.source, "suite": row.suite, "packages": row.packages, "why": row.why or None} for row in rows
        ]}  # fmt: skip
        place.record(MIRRORED, body)
    if faults:
        raise BadInput(faults)
    return rows


def stale(place: Place, mirror: Mirror, suite: str) -> bool:
    """Whether a suite was never completed as archive.yml asks for it now."""
    path = place.directory / "mirrors" / f"{_file(mirror.part(suite))}.json"
    try:
        noted = json.loads(path.read_text())
    except (OSError, ValueError):
        return True
    key = place.key(mirror.key, ("mirrors", mirror.name, "key"))
    return bool(noted != {"spec_sha256": mirror.spec_sha256(suite, key)})


def _file(part: str) -> str:
    return part.replace("/", "%2F")


def _suite(place: Place, mirror: Mirror, suite: str, faults: list[Fault], say: Say) -> Row:
    name = mirror.part(suite)
    try:
        key = place.key(mirror.key, ("mirrors", mirror.name, "key"))
        with keyring(key, mirror.key) as keys:
            ring = place.directory / "mirrors" / f"{mirror.name}.gpg"
            write_whole(ring, keys.binary())
        say(f"{mirror.name} {suite}: from {mirror.url}")
        _define(place, mirror, suite, f"-keyring={ring}")
        # -force: a killed update leaves its process id, which may be another's now; `working` lets in one at a time
        update = ["mirror", "update", "-force", f"-keyring={ring}", "-max-tries=3", name]
        place.aptly.run(*update, timeout_s=MIRROR_S)
        noted = {"spec_sha256": mirror.spec_sha256(suite, key)}
        write_whole(place.directory / "mirrors" / f"{_file(name)}.json", json.dumps(noted))
    except (BadInput, ProcessFailed) as fault:
        why = str(fault)
        faults.append(place.definition.document.fault(("mirrors", mirror.name), f"{suite}: {why}"))
        return Row(mirror.name, suite, 0, why.splitlines()[0])
    return Row(mirror.name, suite, len(place.aptly.packages("mirror", name)))


def _define(place: Place, mirror: Mirror, suite: str, ring: str) -> None:
    """Make aptly's mirror what archive.yml asks for; what cannot be edited is made anew, its files stay."""
    name = mirror.part(suite)
    have = place.aptly.mirrors().get(name)
    if have is not None and not _fits(have, mirror, suite):
        place.aptly.run("mirror", "drop", "-force", name)
        have = None
    if have is None:
        options = [f"-architectures={','.join(mirror.architectures)}"]
        if mirror.query:
            options.append(f"-filter={mirror.query}")
        if mirror.with_dependencies:
            options.append("-filter-with-deps")
        distribution = "./" if suite == "/" else suite
        place.aptly.run("mirror", "create", ring, *options, name, mirror.url, distribution, *mirror.components)


def _fits(have: MirrorState, mirror: Mirror, suite: str) -> bool:
    return (
        have.url.rstrip("/") == mirror.url.rstrip("/")
        and have.suite == ("./" if suite == "/" else suite)
        and have.components == mirror.components
        and sorted(have.architectures) == sorted(mirror.architectures)
        and have.query == mirror.query
        and have.with_dependencies == mirror.with_dependencies
    )


def ensure_incoming(place: Place) -> None:
    if INCOMING not in place.aptly.repositories():
        place.aptly.run("repo", "create", f"-component={place.definition.component}", INCOMING)


def _incoming(place: Place, faults: list[Fault], say: Say) -> Row:
    """Take in what lies in the folder; a file leaves it when it is in."""
    ensure_incoming(place)
    why = ""
    for path in sorted(place.incoming.glob("*.deb")):
        say(f"{INCOMING}: {path.name}")
        done = place.aptly.run("repo", "add", "-remove-files", INCOMING, path, check=False)
        if done.code or path.exists():
            said = [line for line in (done.out + done.err).splitlines() if line.startswith(("[!]", "ERROR"))]
            why = "; ".join(said) or (done.err or done.out).strip()
            faults.append(Fault(str(path), None, f"was not taken in: {why}", "a new build needs a new version"))
    return Row(INCOMING, None, len(place.aptly.packages("repo", INCOMING)), why)
