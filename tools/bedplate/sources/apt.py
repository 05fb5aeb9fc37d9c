"""A signed package archive, read by apt itself in a private root.

apt fetches, checks signatures and hashes, resolves dependencies; this module asks it and reads the answers.

- Nothing of the machine enters: own configuration, own source, own key, an empty dpkg status, no recommends.
  So the closure of the asked packages is complete, whatever the machine has installed.
- Nothing of the machine changes: the root is a temporary directory; no root rights are needed.
- No version is chosen for the user: it is asked in full, or as an upstream version that has one revision.

    with open_archive(Source(url, "a", ("main",), key), "amd64") as archive:
        answer = archive.resolve({"nvidia-driver-570-open": "570.133.20"})
        answer.packages      # name -> Record of the whole closure
        answer.problems      # what could not be had, all of it
"""

import contextlib
import difflib
import os
import re
import tempfile
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from functools import cached_property
from pathlib import Path

from bedplate.model.canonical import sha256
from bedplate.model.faults import BadInput
from bedplate.process import Finished, run

CONNECT_TIMEOUT_S = 15
UPDATE_TIMEOUT_S = 300.0
PROXIES = ("http_proxy", "https_proxy", "no_proxy", "HTTP_PROXY", "HTTPS_PROXY", "NO_PROXY")


@dataclass(frozen=True)
class Source:
    """Where an archive is, and whose signature it must have."""

    url: str
    suite: str
    components: tuple[str, ...]
    key: bytes = field(repr=False)

    def __str__(self) -> str:
        return " ".join((self.url, self.suite, *self.components))


@dataclass(frozen=True)
class Record:
    """A package as the archive's signed index describes it."""

    name: str
    version: str
    architecture: str
    sha256: str
    size: int
    filename: str


@dataclass(frozen=True)
class Problem:
    """An asked package (without a name: the set of them) that cannot be had: what was found, what to do."""

    package: str | None
    found: str
    remedy: str


@dataclass(frozen=True)
class Answer:
    """What apt chose, or why it could not: packages is empty exactly if there are problems."""

    asked: Mapping[str, str]  # name -> the full version
    packages: Mapping[str, Record]
    needs: Mapping[str, frozenset[str]]  # package of the closure -> those of the closure that it depends on
    problems: tuple[Problem, ...]


class Why(StrEnum):
    UNREACHABLE = "cannot be reached"
    MISSING = "is not there"
    UNTRUSTED = "is not signed by the site's key"
    DAMAGED = "is damaged: its files are not those that were signed"
    FAILED = "cannot be read"


# What apt says (2.6 with gpgv, 3.0 with sqv), most telling first.
_SAYS = (
    (Why.DAMAGED, r"Hash Sum mismatch|unexpected size|BADSIG|Clearsigned file isn't valid|Splitting up"),
    (
        Why.UNTRUSTED,
        r"is not signed|NO_PUBKEY|GPG error|OpenPGP|[Ss]ignature|sqv|gpgv|EXPKEYSIG|unusable key",
    ),
    (
        Why.MISSING,
        r"\b404\b|File not found|does not have a Release file|doesn't support architecture|component",
    ),
    (
        Why.UNREACHABLE,
        r"[Cc]ould not connect|[Uu]nable to connect|[Cc]onnection|[Rr]esolv|timed out|[Uu]nreachable|\b50[0-9]\b",
    ),
)


class ArchiveFault(BadInput):
    """The archive as a whole cannot be used; `why` says in which way."""

    def __init__(self, source: Source, why: Why, said: str) -> None:
        self.why = why
        super().__init__(f"archive {source} {why}; apt says:\n  " + said.replace("\n", "\n  "))


@contextlib.contextmanager
def open_archive(source: Source, architecture: str) -> Iterator["Archive"]:
    """Fetch and check the index of an archive for one architecture.

    Raises:
        ArchiveFault: it is unreachable, missing, not signed by the key, or damaged.
    """
    with tempfile.TemporaryDirectory(prefix="bedplate-apt-") as name:
        archive = Archive(source, architecture, Path(name))
        archive.update()
        yield archive


class Archive:
    """An archive in a private apt root; made by open_archive."""

    def __init__(self, source: Source, architecture: str, root: Path) -> None:
        self.source = source
        self.architecture = architecture
        self._root = root
        _furnish(root, source, architecture)

    def update(self) -> None:
        # Error-Mode=any: without it an archive that does not answer is a warning, and the exit code 0
        done = self._apt("apt-get", "update", "-o", "APT::Update::Error-Mode=any", timeout_s=UPDATE_TIMEOUT_S)
        said = _said(done)
        if done.code:
            raise ArchiveFault(self.source, _why(said), said)
        # a component or an architecture that the archive does not have is a notice, and the exit code 0
        if len(self.indices) < len(self.source.components or ("./",)):
            what = f"no Packages file of every component for {self.architecture}"
            raise ArchiveFault(self.source, Why.MISSING, f"{what}\n{said}".strip())
        if not self._inrelease:
            raise ArchiveFault(self.source, Why.MISSING, "no InRelease file (a signature beside Release is not enough)")

    @property
    def key_sha256(self) -> str:
        return sha256(self.source.key)

    @property
    def inrelease_sha256(self) -> str:
        """The signed statement of everything the archive holds."""
        return sha256(self._inrelease[0].read_bytes())

    @property
    def _inrelease(self) -> list[Path]:
        return sorted((self._root / "lists").glob("*InRelease"))

    @property
    def indices(self) -> list[Path]:
        """The Packages files: apt puts them here once they match the signed InRelease, and nothing else does."""
        return sorted((self._root / "lists").glob("*_Packages"))

    @cached_property
    def _index(self) -> "Index":
        return Index.of(path.read_text("utf-8", "replace") for path in self.indices)

    def versions(self, name: str) -> list[str]:
        """The versions of a package that the archive has, as the index has them."""
        return [record.version for record in self._index.records.get(name, ())]

    def records(self, name: str) -> tuple[Record, ...]:
        """Every version of a package that the archive has."""
        return tuple(self._index.records.get(name, ()))

    def find(self, name: str, version: str) -> Record | Problem:
        """The one package that a name and a full or upstream version mean."""
        return self._index.find(name, version)

    def resolve(self, asked: Mapping[str, str]) -> Answer:
        """The closure of asked packages, each at exactly the version asked for.

        Args:
            asked: name -> full Debian version, or upstream version that has exactly one revision.
        """
        found = {name: self.find(name, version) for name, version in sorted(asked.items())}
        problems = tuple(item for item in found.values() if isinstance(item, Problem))
        full = {name: item.version for name, item in found.items() if isinstance(item, Record)}
        if problems or not full:
            return Answer(full, {}, {}, problems)
        words = [f"{name}={version}" for name, version in (self._index.forced(full) | full).items()]
        done = self._apt("apt-get", "-s", "-y", "--no-install-recommends", "install", *words)
        if done.code:
            said = _conflict(done)
            return Answer(full, {}, {}, (Problem(None, f"apt finds no way to install them together: {said}", ""),))
        chosen = dict(_installs(done.out))
        overridden = tuple(
            Problem(name, f"asked for {version}, apt would install {chosen.get(name, 'nothing')}", "")
            for name, version in full.items()
            if chosen.get(name) != version
        )
        packages = {name: self._index.exactly(name, version) for name, version in sorted(chosen.items())}
        problems = overridden + tuple(item for item in packages.values() if isinstance(item, Problem))
        records = {name: item for name, item in packages.items() if isinstance(item, Record)}
        if problems:
            return Answer(full, {}, {}, problems)
        return Answer(full, records, self._index.needs(chosen), ())

    def fetch(self, record: Record, folder: Path) -> Path:
        """Download a package into a folder; apt checks it against the signed index.

        Raises:
            ArchiveFault: it is not there, or its bytes are others than the index says.
        """
        done = self._apt(
            "apt-get", "download", f"{record.name}={record.version}", cwd=folder, timeout_s=UPDATE_TIMEOUT_S
        )
        found = sorted(folder.glob("*.deb"))
        if done.code or len(found) != 1:
            raise ArchiveFault(self.source, _why(_said(done)), _said(done) or f"no {record.filename}")
        if sha256(found[0].read_bytes()) != record.sha256:
            raise ArchiveFault(self.source, Why.DAMAGED, f"{record.filename} is not {record.sha256}")
        return found[0]

    def _apt(self, *argv: str, timeout_s: float = 120.0, cwd: Path | None = None) -> Finished:
        env = {key: os.environ[key] for key in ("PATH", "TMPDIR", *PROXIES) if key in os.environ}
        env |= {"APT_CONFIG": str(self._root / "apt.conf"), "LC_ALL": "C.UTF-8"}
        return run(argv, check=False, timeout_s=timeout_s, env=env, cwd=cwd)


def _furnish(root: Path, source: Source, architecture: str) -> None:
    """Make the private root: everything that apt would otherwise take from the machine."""
    for folder in ("etc", "lists/partial", "cache/archives/partial", "log"):
        (root / folder).mkdir(parents=True)
    (root / "status").touch()
    armored = source.key.lstrip().startswith(b"-----BEGIN")
    key = root / "etc" / ("key.asc" if armored else "key.gpg")  # apt tells the two forms by their suffix
    key.write_bytes(source.key)
    (root / "etc/archive.sources").write_text(
        "Types: deb\n"
        f"URIs: {source.url}\n"
        f"Suites: {source.suite}\n"
        + (f"Components: {' '.join(source.components)}\n" if source.components else "")
        + f"Architectures: {architecture}\nSigned-By: {key}\n"
    )
    (root / "apt.conf").write_text(
        f"""\
Dir "{root}";
Dir::Etc "{root}/etc";
Dir::Etc::main "/dev/null";
Dir::Etc::parts "/dev/null";
Dir::Etc::sourcelist "{root}/etc/archive.sources";
Dir::Etc::sourceparts "/dev/null";
Dir::Etc::preferences "/dev/null";
Dir::Etc::preferencesparts "/dev/null";
Dir::Etc::trusted "/dev/null";
Dir::Etc::trustedparts "/dev/null";
Dir::Etc::netrc "/dev/null";
Dir::Etc::netrcparts "/dev/null";
Dir::State "{root}";
Dir::State::lists "{root}/lists";
Dir::State::status "{root}/status";
Dir::Cache "{root}/cache";
Dir::Log "{root}/log";
APT::Architecture "{architecture}";
APT::Architectures {{ "{architecture}"; }};
APT::Sandbox::User "root";
APT::Install-Recommends "false";
APT::Install-Suggests "false";
APT::Get::AllowUnauthenticated "false";
Acquire::AllowInsecureRepositories "false";
Acquire::AllowDowngradeToInsecureRepositories "false";
Acquire::Languages "none";
Acquire::GzipIndexes "false";
Acquire::PDiffs "false";
Acquire::Retries "1";
Acquire::http::Timeout "{CONNECT_TIMEOUT_S}";
Acquire::https::Timeout "{CONNECT_TIMEOUT_S}";
"""
    )


@dataclass(frozen=True)
class Index:
    """The Packages files of an archive, by name. Pure."""

    records: Mapping[str, list[Record]]
    providers: Mapping[str, set[str]]  # virtual name -> packages that provide it
    depends: Mapping[tuple[str, str], str]  # name, version -> Pre-Depends and Depends

    @classmethod
    def of(cls, texts: Iterable[str]) -> "Index":
        records: dict[str, list[Record]] = {}
        providers: dict[str, set[str]] = {}
        depends: dict[tuple[str, str], str] = {}
        for text in texts:
            for fields in _stanzas(text):
                record = _record(fields)
                known = records.setdefault(record.name, [])
                if record not in known:
                    known.append(record)
                depends[record.name, record.version] = ", ".join(
                    fields[name] for name in ("Pre-Depends", "Depends") if name in fields
                )
                for provided in re.findall(r"(?:^|,)\s*([a-z0-9][a-z0-9+.-]+)", fields.get("Provides", "")):
                    providers.setdefault(provided, set()).add(record.name)
        return cls(records, providers, depends)

    def find(self, name: str, version: str) -> Record | Problem:
        """The package that a full version, or an upstream version with exactly one revision, means."""
        have = self.records.get(name)
        if not have:
            return self._absent(name)
        versions = {record.version for record in have}
        means = {version} if version in versions else {v for v in versions if version in upstream(v)}
        if len(means) == 1:
            return self.exactly(name, means.pop())
        if means:
            several = ", ".join(sorted(means))
            return Problem(name, f"version {version} has {len(means)} revisions: {several}", "name one of them in full")
        there = ", ".join(sorted(versions))
        return Problem(name, f"the archive has no version {version}; it has {there}", "ask for one of these")

    def exactly(self, name: str, version: str) -> Record | Problem:
        """The record of a name and full version, which must mean one file."""
        same = [record for record in self.records.get(name, ()) if record.version == version]
        if len(same) == 1:
            return same[0]
        files = ", ".join(f"{record.filename} {record.sha256}" for record in same) or "none"
        return Problem(name, f"version {version} means {len(same)} files: {files}", "the archive must have one")

    def forced(self, chosen: Mapping[str, str]) -> dict[str, str]:
        """What chosen versions depend on at one exact version, and so on: these are no choice.

        apt has to be told: its resolver considers the newest version of what nobody named, finds that
        `Depends: libnvidia-compute-570 (= 570.133.20-0ubuntu1)` does not go with it, and gives up.
        """
        forced: dict[str, str] = {}
        heads = list(chosen.items())
        while heads:
            for name, version in _exact_depends(self.depends.get(heads.pop(), "")):
                known = any(record.version == version for record in self.records.get(name, ()))
                if known and name not in forced:
                    forced[name] = version
                    heads.append((name, version))
        return forced

    def needs(self, chosen: Mapping[str, str]) -> dict[str, frozenset[str]]:
        """Chosen package -> the chosen ones that its Depends name, or that provide what they name."""
        providers = {virtual: names & chosen.keys() for virtual, names in self.providers.items()}
        return {
            name: frozenset(
                needed
                for word in re.findall(r"(?:^|[,|])\s*([a-z0-9][a-z0-9+.-]+)", self.depends.get((name, version), ""))
                for needed in ({word} & chosen.keys()) | providers.get(word, set())
            )
            for name, version in chosen.items()
        }

    def _absent(self, name: str) -> Problem:
        provided_by = sorted(self.providers.get(name, ()))
        if provided_by:
            real = "; ".join(f"{p} {', '.join(r.version for r in self.records[p])}" for p in provided_by)
            return Problem(
                name,
                "is a virtual package: it has no version to ask for",
                f"ask for what provides it: {real}",
            )
        stem = re.sub(r"-[0-9][0-9.]*(?=-|$)", "", name)  # from 580 on names lose their branch suffix
        near = [stem] if stem != name and stem in self.records else []
        near += [n for n in difflib.get_close_matches(name, self.records, n=3, cutoff=0.75) if n not in near]
        return Problem(name, "the archive has no such package", f"near names: {', '.join(near)}" if near else "")


def upstream(version: str) -> set[str]:
    """The upstream version in a Debian version, with and without epoch: 1:4.6.0-1 -> 4.6.0, 1:4.6.0."""
    whole = version.rpartition("-")[0] or version
    return {whole, whole.partition(":")[2] or whole}


def _exact_depends(depends: str) -> Iterator[tuple[str, str]]:
    for clause in depends.split(","):
        found = re.fullmatch(r"\s*([a-z0-9][a-z0-9+.-]+)(?::[a-z0-9-]+)?\s*\(=\s*([^\s)]+)\s*\)\s*", clause)
        if found:  # a clause with alternatives (a | b) leaves a choice, so it does not match
            yield found[1], found[2]


_WANTED = (
    "Package", "Version", "Architecture", "SHA256", "Size", "Filename", "Provides", "Pre-Depends", "Depends",
)  # fmt: skip
_FIELD = re.compile(rf"^({'|'.join(_WANTED)}):[ \t]*(.*(?:\n[ \t].*)*)", re.MULTILINE)


def _stanzas(text: str) -> Iterator[dict[str, str]]:
    for stanza in re.split(r"\n(?:[ \t]*\n)+", text):
        fields = {name: value.strip() for name, value in _FIELD.findall(stanza)}
        if "Package" in fields:
            yield fields


def _record(fields: Mapping[str, str]) -> Record:
    try:
        return Record(
            fields["Package"], fields["Version"], fields["Architecture"], f"sha256:{fields['SHA256']}",
            int(fields["Size"]), fields["Filename"].removeprefix("./"),
        )  # fmt: skip
    except (KeyError, ValueError) as fault:
        raise BadInput(f"the archive's record of {fields.get('Package')} is incomplete: {fault}") from fault


def _installs(out: str) -> Iterator[tuple[str, str]]:
    """What `apt-get -s install` would install: `Inst libnuma1 (2.0.18-1+b1 lab:a [amd64])`."""
    for name, version in re.findall(r"^Inst (\S+) (?:\[[^]]*\] )?\((\S+) ", out, re.MULTILINE):
        yield name.partition(":")[0], version


def _conflict(done: Finished) -> str:
    """What apt said: the block of unmet dependencies of stdout, and the errors of stderr."""
    _, found, tail = done.out.partition("The following packages have unmet dependencies:")
    errors = [line for line in done.err.splitlines() if line.startswith("E:")]
    return "\n".join([*([tail.strip("\n")] if found else []), *errors]) or done.err.strip() or done.out.strip()


def _said(done: Finished) -> str:
    """Errors and warnings of `apt-get update`; 3.0 tells some reasons only below the Err: line of stdout."""
    lines = [line for line in done.err.splitlines() if line[:2] in {"E:", "W:"}]
    below = [text.strip() for text in re.findall(r"(?<=\n)  (\S.*)", done.out)]
    lines += [text for text in dict.fromkeys(below) if not any(text in line for line in lines)]
    return "\n".join(lines) or done.err.strip()


def _why(said: str) -> Why:
    return next((why for why, words in _SAYS if re.search(words, said)), Why.FAILED)
