"""What an archive's snapshot is made of, what may be collected, and what its signed texts say.

Invariants
- A package name comes from one source; two that supply it are named, both, unless archive.yml shares it.
- What a lock refers to stays: its suite by name, and every package of it by sha256, wherever it lies.
- What nobody recorded stays: collecting is for what is known, not for what is unknown.
"""

import fnmatch
import json
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta

from bedplate.model.canonical import DIGEST, canonical
from bedplate.model.faults import BadInput

FIGHTS_SHOWN = 30  # lines of a refusal


@dataclass(frozen=True, order=True)
class Package:
    """One file of the archive; sha256 with its prefix."""

    name: str
    version: str
    architecture: str
    sha256: str
    size: int


@dataclass(frozen=True)
class Part:
    """What one source gives to a snapshot: one suite of a mirror, or the team's own packages."""

    source: str
    suite: str | None
    packages: tuple[Package, ...]
    updated_at: str | None = None
    """When the mirror was last brought up to date."""

    def __str__(self) -> str:
        return f"{self.source} {self.suite}" if self.suite else self.source


def fights(parts: Sequence[Part], shared: Mapping[str, str]) -> list[str]:
    """What two sources supply, and what one name and version mean two files of; empty: nothing to refuse."""
    suppliers: dict[str, dict[str, set[str]]] = {}
    files: dict[tuple[str, str, str], dict[str, str]] = {}
    for part in parts:
        for package in part.packages:
            suppliers.setdefault(package.name, {}).setdefault(part.source, set()).add(package.version)
            files.setdefault((package.name, package.version, package.architecture), {})[package.sha256] = str(part)
    said = [
        f"{name}: " + "; ".join(f"{source} has {', '.join(sorted(found))}" for source, found in sorted(have.items()))
        for name, have in sorted(suppliers.items())
        if len(have) > 1 and not any(fnmatch.fnmatchcase(name, glob) for glob in shared)
    ]
    said += [
        f"{name} {version} {architecture} means {len(same)} files: "
        + "; ".join(f"{digest} of {part}" for digest, part in sorted(same.items()))
        for (name, version, architecture), same in sorted(files.items())
        if len(same) > 1
    ]
    return said


def members(parts: Iterable[Part]) -> tuple[Package, ...]:
    """The packages of a snapshot, sorted; a file that several suites have counts once."""
    return tuple(sorted({package for part in parts for package in part.packages}))


def package_list(name: str, parts: Sequence[Part]) -> bytes:
    """The list of a snapshot: what it is made of, and every file with its hash. The same parts, the same bytes."""
    return canonical({
        "snapshot": name,
        "sources": [
            {"source": part.source, "suite": part.suite, "packages": len(part.packages), "updated_at": part.updated_at}
            for part in parts
        ],
        "packages": [[p.name, p.version, p.architecture, p.sha256, p.size] for p in members(parts)],
    })  # fmt: skip


# --- collecting -----------------------------------------------------------------------------------


@dataclass(frozen=True)
class Held:
    """A published suite or a snapshot, as it lies there; made_at: None if no record of it exists."""

    name: str
    made_at: datetime | None
    packages: frozenset[str]
    snapshot: str = ""
    """Of a suite: what it was published from."""
    inrelease_sha256: str = ""
    """Of a suite: its signed index."""


@dataclass(frozen=True)
class Reference:
    """A lock: where it stands, and what it needs. packages: sha256 -> name and version."""

    source: str
    suite: str
    inrelease_sha256: str
    packages: Mapping[str, str]


@dataclass(frozen=True)
class Verdict:
    """What becomes of a suite or a snapshot, and why."""

    what: str
    name: str
    stays: bool
    why: tuple[str, ...]


def reference(source: str, document: Mapping[str, object]) -> Reference:
    """What a lock document needs of an archive.

    Raises:
        BadInput: it cannot be read: then nothing may be collected.
    """
    try:
        archive, kinds = document["archive"], document["packages"]
        packages = {
            package["sha256"]: f"{name} {package['version']}"
            for of_kind in kinds.values()  # type: ignore[attr-defined]
            for name, package in of_kind.items()
        }
        found = Reference(source, archive["suite"], archive["inrelease_sha256"], packages)  # type: ignore[index]
    except (KeyError, TypeError, AttributeError) as fault:
        raise BadInput(f"{source}: cannot tell which packages it needs: {fault!r}; nothing is collected") from fault
    if not isinstance(found.suite, str) or not all(DIGEST.fullmatch(digest) for digest in packages):
        raise BadInput(f"{source}: cannot tell which packages it needs; nothing is collected")
    return found


def collection(
    suites: Sequence[Held],
    snapshots: Sequence[Held],
    references: Sequence[Reference],
    wishes: Mapping[str, Sequence[str]],
    *,
    now: datetime,
    keep_days: int,
) -> list[Verdict]:
    """What stays and what goes.

    Args:
        suites: those that are published.
        snapshots: those that exist.
        references: every lock of ledger and site.
        wishes: suite -> the environment files that name it; they may be locked next.
        now: the time.
        keep_days: what is younger stays.
    """
    why_suite = {suite.name: _why_suite(suite, references, wishes, now, keep_days) for suite in suites}
    why_snapshot = {snapshot.name: _why_age(snapshot, now, keep_days) for snapshot in snapshots}
    for suite in suites:
        if why_suite[suite.name] and suite.snapshot in why_snapshot:
            why_snapshot[suite.snapshot].append(f"published as {suite.name}")
    everything: list[tuple[Held, list[str]]] = [
        *((suite, why_suite[suite.name]) for suite in suites),
        *((snapshot, why_snapshot[snapshot.name]) for snapshot in snapshots),
    ]
    safe = {digest for held, why in everything if why for digest in held.packages}
    for needed in references:  # by their bytes too: a suite may have been renamed, or an archive copied
        for held, why in everything:
            saves = sorted(needed.packages[digest] for digest in (needed.packages.keys() & held.packages) - safe)
            if saves:
                more = f" and {len(saves) - 1} more" if len(saves) > 1 else ""
                why.append(f"{needed.source} needs {saves[0]}{more}, which nothing else here has")
                safe |= held.packages
                if held.snapshot in why_snapshot:  # a suite: what it was published from stays with it
                    why_snapshot[held.snapshot].append(f"published as {held.name}")
    return [
        *(_verdict("suite", suite.name, why_suite[suite.name]) for suite in suites),
        *(_verdict("snapshot", snapshot.name, why_snapshot[snapshot.name]) for snapshot in snapshots),
    ]


def _verdict(what: str, name: str, why: Sequence[str]) -> Verdict:
    return Verdict(what, name, bool(why), tuple(dict.fromkeys(why)) or ("no lock refers to it",))


def _why_suite(
    suite: Held, references: Sequence[Reference], wishes: Mapping[str, Sequence[str]], now: datetime, keep_days: int
) -> list[str]:
    why = []
    for needed in references:
        if needed.suite == suite.name:
            other = "" if needed.inrelease_sha256 == suite.inrelease_sha256 else ", with another InRelease"
            why.append(f"{needed.source} refers to it{other}")
    why += [f"{file} asks for it" for file in wishes.get(suite.name, ())]
    return [*why, *_why_age(suite, now, keep_days)]


def _why_age(held: Held, now: datetime, keep_days: int) -> list[str]:
    if held.made_at is None:
        return ["no record of it: not made by bedplate"]
    if now - held.made_at < timedelta(days=keep_days):
        return [f"made {held.made_at:%Y-%m-%d}, less than {keep_days} days ago"]
    return []


# --- the texts of an archive ----------------------------------------------------------------------


@dataclass(frozen=True)
class Listed:
    """A file as a signed text describes it."""

    sha256: str
    size: int


def release_files(text: str) -> dict[str, Listed]:
    """The files that a Release text lists, by path below dists/SUITE.

    Raises:
        ValueError: it lists none.
    """
    section = re.search(r"^SHA256:[ \t]*\n((?:[ \t]+.*\n?)+)", text, re.MULTILINE)
    files = {}
    for line in section[1].splitlines() if section else ():
        digest, size, path = line.split()
        files[path] = Listed(f"sha256:{digest}", int(size))
    if not files:
        raise ValueError("lists no files with SHA256")
    return files


def index_files(text: str) -> Iterator[tuple[str, Listed]]:
    """The packages that a Packages text lists: path below the archive's root, and what lies there.

    Raises:
        ValueError: a stanza lacks a field.
    """
    for stanza in re.split(r"\n(?:[ \t]*\n)+", text.strip()):
        if not stanza.strip():
            continue
        fields = dict(re.findall(r"^(Filename|SHA256|Size):[ \t]*(\S+)", stanza, re.MULTILINE))
        if len(fields) < 3:  # noqa: PLR2004  the three above
            raise ValueError(f"a stanza without Filename, SHA256 or Size: {stanza.splitlines()[0]}")
        yield fields["Filename"].removeprefix("./"), Listed(f"sha256:{fields['SHA256']}", int(fields["Size"]))


_SUM = re.compile(r"([0-9a-f]{64})  (\S(?:.*\S)?)")


def checksums(text: str) -> dict[str, str]:
    """The files of a list in the format of sha256sum: path -> sha256.

    Raises:
        ValueError: a line is none of that format, or a file stands there twice.
    """
    files: dict[str, str] = {}
    for number, line in enumerate(text.splitlines(), 1):
        match = _SUM.fullmatch(line)
        if match is None:
            raise ValueError(f"line {number} is no line of sha256sum")
        if match[2] in files:
            raise ValueError(f"line {number}: {match[2]} stands there twice")
        files[match[2]] = f"sha256:{match[1]}"
    return files


def checksum_text(files: Mapping[str, str]) -> str:
    """The list that `checksums` reads, and `sha256sum -c` too."""
    return "".join(f"{digest.removeprefix('sha256:')}  {path}\n" for path, digest in sorted(files.items()))


def package_list_packages(data: bytes) -> tuple[Package, ...]:
    """The packages of a list that `package_list` wrote."""
    return tuple(Package(*entry) for entry in json.loads(data)["packages"])
