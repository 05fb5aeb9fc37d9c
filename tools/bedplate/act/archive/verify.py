"""Every byte of the archive, hashed again: what is damaged, what is missing, what nobody knows.

Trust begins at two places: the site's public key, and the ledger. The key vouches for InRelease, this for the
Packages files, these for the packages; the ledger has the hash of SHA256SUMS, this those of the other files.
"""

import os
from collections.abc import Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from bedplate.act.archive.collect import references
from bedplate.act.archive.place import (
    ADDED,
    COLLECTED,
    KEPT,
    PUBLISHED,
    SNAPSHOT,
    VERIFIED,
    Place,
    file_sha256,
    working,
)
from bedplate.decide.archive import Listed, index_files, package_list_packages, release_files
from bedplate.model.canonical import sha256
from bedplate.sources.aptly import pool_path
from bedplate.sources.signature import Keyring, keyring
from bedplate.sources.site import Site

HASHERS = min(8, os.cpu_count() or 1)  # hashing leaves the interpreter; more than the disk gives is no use
RECORDED_MAX = 500  # findings in an event; all of them are printed
SIGNED = ("InRelease", "Release", "Release.gpg")


@dataclass(frozen=True, order=True)
class Finding:
    """One thing that is not as it should be: place, what was found, what to do."""

    place: str
    found: str
    remedy: str = ""

    def __str__(self) -> str:
        return f"{self.place}: {self.found}" + (f" ({self.remedy})" if self.remedy else "")


@dataclass
class Examination:
    """What was looked at, and what was found."""

    findings: list[Finding] = field(default_factory=list)
    files: int = 0
    size: int = 0
    suites: int = 0


def verify(site: Site) -> Examination:
    """Hash everything, compare it with what was signed and recorded, and record the outcome."""
    with working(site, "verify the archive") as place, keyring(place.signing_key, place.definition.signing_key) as keys:
        examiner = _Examiner(place, keys)
        examiner.suites()
        examiner.pool()
        examiner.snapshots()
        examiner.kept()
        done = examiner.done
        done.findings.sort()
        body = {
            "files": done.files, "size": done.size, "suites": done.suites, "findings": len(done.findings),
            "found": [str(finding) for finding in done.findings[:RECORDED_MAX]],
        }  # fmt: skip
        place.record(VERIFIED, body)
    return done


class _Examiner:
    def __init__(self, place: Place, keys: Keyring) -> None:
        self.place = place
        self.keys = keys
        self.done = Examination()
        self._digests: dict[tuple[int, int], str] = {}  # device, inode -> sha256: a linked file is hashed once
        self._listed: dict[str, Listed] = {}  # path below public/ -> what a signed index says of it
        self._unjudged: list[str] = []  # suites whose packages are unknown

    def _find(self, path: Path | str, found: str, remedy: str = "") -> None:
        name = str(path.relative_to(self.place.directory)) if isinstance(path, Path) else path
        self.done.findings.append(Finding(name, found, remedy))

    def _hash(self, paths: list[Path]) -> Mapping[Path, str]:
        """The sha256 of files, or what the disk says."""
        new: dict[tuple[int, int], Path] = {}
        keys: dict[Path, tuple[int, int]] = {}
        for path in paths:
            about = path.stat()
            keys[path] = (about.st_dev, about.st_ino)
            if keys[path] not in self._digests and keys[path] not in new:
                new[keys[path]] = path
                self.done.files += 1
                self.done.size += about.st_size
        with ThreadPoolExecutor(HASHERS) as pool:
            self._digests |= dict(zip(new, pool.map(_digest, new.values()), strict=True))
        return {path: self._digests[keys[path]] for path in paths}

    # --- suites ---------------------------------------------------------------------------------

    def suites(self) -> None:
        collected = {suite for event in self.place.events(COLLECTED) for suite in event.body["suites"]}
        recorded = {e.body["suite"]: e.body for e in self.place.events(PUBLISHED) if e.body["suite"] not in collected}
        there = self.place.suites()
        for suite in sorted(recorded.keys() - set(there)):
            what = f"suite {suite} is missing"
            self._find(self.place.suite_path(suite), what, f"run: bedplate archive publish {suite}")
        locks = references(self.place.site)
        for suite in there:
            self.done.suites += 1
            folder = self.place.suite_path(suite)
            if suite not in recorded:
                self._find(folder, f"suite {suite} is unknown: the ledger has no record of it")
            inrelease = folder / "InRelease"
            if not inrelease.is_file():
                self._find(inrelease, "is missing", f"remove {folder.name} and run: bedplate archive publish {suite}")
                self._unjudged.append(suite)
                continue
            digest = self._hash([inrelease])[inrelease]
            if suite in recorded and digest != recorded[suite]["inrelease_sha256"]:
                self._find(inrelease, f"is {digest}, recorded was {recorded[suite]['inrelease_sha256']}")
            for lock in locks:
                if lock.suite == suite and lock.inrelease_sha256 != digest:
                    self._find(inrelease, f"is {digest}, {lock.source} was made from {lock.inrelease_sha256}")
            self._suite(suite, folder)

    def _suite(self, suite: str, folder: Path) -> None:
        signed = self.keys.signed(folder / "InRelease")
        if signed.problem:
            self._find(folder / "InRelease", signed.problem, "put it back from a copy")
            self._unjudged.append(suite)
            return
        self._release(folder, signed.text)
        try:
            listed = release_files(signed.text)
        except ValueError as fault:
            self._find(folder / "InRelease", str(fault))
            self._unjudged.append(suite)
            return
        files = {path: folder / path for path in listed}
        whole = self._compare({files[path]: about for path, about in listed.items()})
        for path in sorted(_files(folder) - set(files.values()) - {folder / name for name in SIGNED}):
            self._find(path, "is unknown: no signed index lists it", "remove it")
        indices = [path for path in files.values() if path.name == "Packages"]
        if not indices or not whole.issuperset(indices):
            self._unjudged.append(suite)
        for index in whole.intersection(indices):
            self._listed |= index_files(index.read_text("utf-8", "replace"))

    def _release(self, folder: Path, text: str) -> None:
        """Release says what InRelease says, and Release.gpg signs it; apt uses them where InRelease is absent."""
        release, signature = folder / "Release", folder / "Release.gpg"
        if release.is_file() and release.read_text("utf-8", "replace").strip() != text.strip():
            self._find(release, "is damaged: it says other than InRelease")
        elif release.is_file() and signature.is_file() and (problem := self.keys.detached(signature, release)):
            self._find(signature, problem)

    def _compare(self, wanted: Mapping[Path, Listed]) -> set[Path]:
        """Name what is missing or damaged; returns what is whole."""
        there = [path for path in wanted if path.is_file()]
        for path in wanted.keys() - set(there):
            self._find(path, "is missing")
        whole = set()
        for path, digest in self._hash(there).items():
            if digest == wanted[path].sha256:
                whole.add(path)
            else:
                size = path.stat().st_size
                found = f"{size} bytes, {digest}; signed are {wanted[path].size} bytes, {wanted[path].sha256}"
                self._find(path, f"is damaged: {found}")
        return whole

    # --- pools ----------------------------------------------------------------------------------

    def pool(self) -> None:
        """The served pool against the signed indices, and aptly's own against its names."""
        public = self.place.public
        self._compare({public / path: about for path, about in self._listed.items()})
        if self._unjudged:
            suites = ", ".join(self._unjudged)
            self._find(public / "pool", f"packages of {suites} were not judged: no signed index says what they are")
        else:
            for path in sorted(_files(public / "pool") - {public / name for name in self._listed}):
                self._find(path, "is unknown: no signed index lists it", "run: bedplate archive gc")
        for path in sorted(_files(public) - _files(public / "pool") - _files(public / "dists")):
            self._find(path, "is unknown: only dists/ and pool/ are served", "remove it")
        pool = self.place.aptly.pool
        for path, digest in self._hash(sorted(_files(pool))).items():
            name = path.relative_to(pool).as_posix()
            file = path.name.partition("_")[2]
            if name != pool_path(digest, file):
                self._find(path, f"is damaged or unknown: its name does not fit its content, {digest}")

    # --- snapshots ------------------------------------------------------------------------------

    def snapshots(self) -> None:
        """Aptly's snapshots hold what was recorded, and their files are there."""
        collected = {name for event in self.place.events(COLLECTED) for name in event.body["snapshots"]}
        there = self.place.aptly.snapshots()
        pool = {path.relative_to(self.place.aptly.pool).as_posix()[:34] for path in _files(self.place.aptly.pool)}
        recorded = {e.body["snapshot"]: e.body for e in self.place.events(SNAPSHOT)}
        for name in sorted(recorded.keys() - collected):
            path = self.place.list_path(name)
            if name not in there:
                self._find(f"aptly snapshot {name}", "is missing")
                continue
            if not path.is_file() or sha256(path.read_bytes()) != recorded[name]["list_sha256"]:
                continue  # kept() names the list
            packages = self.place.aptly.packages("snapshot", name)
            if packages != package_list_packages(path.read_bytes()):
                self._find(f"aptly snapshot {name}", f"holds other packages than {path.name} says: it was changed")
            for package in packages:
                if pool_path(package.sha256, "")[:34] not in pool:
                    what = f"{package.name} {package.version} {package.architecture}, {package.sha256}, is missing"
                    self._find(f"aptly snapshot {name}", what)
        for name in sorted(there - recorded.keys()):
            self._find(f"aptly snapshot {name}", "is unknown: the ledger has no record of it")

    # --- the other files ------------------------------------------------------------------------

    def kept(self) -> None:
        """files/ and snapshots/ against SHA256SUMS, and this against the ledger."""
        place = self.place
        events = place.events(ADDED, SNAPSHOT)
        recorded = dict(_recorded(events))
        try:
            listed = place.sums()
        except ValueError as fault:
            self._find(place.sums_path, f"is damaged: {fault}", "put it back from a copy")
            listed = {}
        found = sha256(place.sums_path.read_bytes()) if place.sums_path.is_file() else None
        if events and found != events[-1].body["sums_sha256"]:
            self._find(place.sums_path, f"is {found or 'missing'}, recorded was {events[-1].body['sums_sha256']}")
        for name in sorted(listed.keys() | recorded.keys()):
            if listed.get(name) != recorded.get(name):
                what = f"has {listed.get(name, 'nothing')} for {name}, recorded was {recorded.get(name, 'nothing')}"
                self._find(place.sums_path, what)
        self._kept_files(listed | recorded)
        for entry in place.definition.files.values():
            name = f"files/{entry.kind}/{entry.name}"
            if recorded.get(name) != entry.sha256:
                what = f"is not archived as archive.yml asks for it, {entry.sha256}"
                self._find(name, what, f"run: bedplate archive add {entry.name} --kind {entry.kind}")

    def _kept_files(self, recorded: Mapping[str, str]) -> None:
        wanted = {self.place.directory / name: digest for name, digest in recorded.items()}
        there = {path for folder in KEPT for path in _files(self.place.directory / folder)}
        for path in sorted(wanted.keys() - there):
            self._find(path, "is missing", "archive it again: bedplate archive add")
        for path in sorted(there - wanted.keys()):
            self._find(
                path, "is unknown: SHA256SUMS does not list it", "archive it: bedplate archive add, or remove it"
            )
        for path, digest in self._hash(sorted(there & wanted.keys())).items():
            if digest != wanted[path]:
                self._find(path, f"is damaged: {digest}, recorded was {wanted[path]}")


def _recorded(events: list[Any]) -> Iterator[tuple[str, str]]:
    for event in events:
        if event.kind == ADDED:
            yield f"files/{event.body['kind']}/{event.body['name']}", event.body["sha256"]
        else:
            yield f"snapshots/{event.body['snapshot']}.json", event.body["list_sha256"]


def _files(folder: Path) -> set[Path]:
    """Every file below a directory, and every link: nothing here is one."""
    return {Path(at) / name for at, inner, names in os.walk(folder) for name in [*names, *_links(Path(at), inner)]}


def _links(at: Path, names: list[str]) -> list[str]:
    return [name for name in names if (at / name).is_symlink()]


def _digest(path: Path) -> str:
    try:
        return file_sha256(path)
    except OSError as fault:  # a bad block: the finding says so
        return f"unreadable: {fault.strerror}"
