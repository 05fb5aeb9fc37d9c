"""The package archive as a site asks for it: what is mirrored, what is kept besides, who signs it.

Names of Debian packages may come from one source only: what two sources supply, apt would choose by version and
priority. `exclude` takes names out of a mirror; NVIDIA's CUDA repository, for one, also carries dkms with an epoch.
"""

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Annotated

from pydantic import AfterValidator, BaseModel, ConfigDict, Field

from bedplate.model.canonical import DIGEST, identity
from bedplate.model.faults import BadInput, Fault
from bedplate.model.schema import Strict, checked, nearest, wrong
from bedplate.model.text import Document, Path, read_yaml
from bedplate.model.wording import exact_faults, inner_path, matching

INCOMING = "incoming"  # the name of the source of what the team builds


class Kind(StrEnum):
    """What a file is that is archived besides packages."""

    ISO = "iso"
    NETBOOT = "netboot"
    MEDIA = "media"
    INSTRUCTIONS = "instructions"


@dataclass(frozen=True)
class Mirror:
    """Another archive, of which all, or what a filter lets through, is copied."""

    name: str
    url: str
    suites: tuple[str, ...]
    components: tuple[str, ...]
    architectures: tuple[str, ...]
    key: str
    filter: str | None = None
    exclude: tuple[str, ...] = ()
    with_dependencies: bool = False

    @property
    def query(self) -> str:
        """What aptly is asked to let through; empty: everything."""
        parts = [f"({self.filter})"] if self.filter else []
        if self.exclude and not parts:
            parts = ["Name (% *)"]
        return ", ".join([*parts, *(f"!Name (% {glob})" for glob in self.exclude)])

    def part(self, suite: str) -> str:
        """Aptly's name for one suite of it: aptly mirrors suite by suite."""
        return f"{self.name}@{suite}"

    def spec_sha256(self, suite: str, key: bytes) -> str:
        """Identity of what is asked of one suite."""
        return identity({
            "url": self.url, "suite": suite, "components": list(self.components),
            "architectures": list(self.architectures), "query": self.query,
            "with_dependencies": self.with_dependencies, "key": key.decode("latin-1"),
        })  # fmt: skip


@dataclass(frozen=True)
class KeptFile:
    """A file that the archive shall hold: an ISO, a kernel, instructions."""

    name: str
    kind: Kind
    sha256: str


@dataclass(frozen=True)
class ArchiveDefinition:
    name: str
    directory: str
    url: str
    component: str
    architectures: tuple[str, ...]
    signing_user: str
    """What gpg knows the signing key by: a user ID, or a fingerprint."""
    signing_key: str
    """The public key, relative to the site."""
    mirrors: Mapping[str, Mirror]
    shared: Mapping[str, str] = field(default_factory=dict)
    """Pattern of package names that two sources may both supply -> why."""
    files: Mapping[str, KeptFile] = field(default_factory=dict)
    keep_days: int = 30
    document: Document = field(default_factory=lambda: Document("", None), repr=False, compare=False)


def parse_archive(text: str, file: str) -> ArchiveDefinition:
    """Read archive.yml.

    Raises:
        BadInput: every fault of the file.
    """
    document = read_yaml(text, file)
    result = checked(_Archive, document)
    faults = [*document.faults, *result.faults, *exact_faults(document, prose=_prose)]
    said = result.value
    lists = said or checked(_Lists, document).value  # so that a fault elsewhere does not hide those of the lists
    if lists is not None:
        faults += _faults(document, lists)
    if faults or said is None:
        raise BadInput(faults)
    return ArchiveDefinition(
        name=said.archive,
        directory=said.directory,
        url=said.url,
        component=said.component,
        architectures=tuple(said.architectures),
        signing_user=said.signing.user,
        signing_key=said.signing.key,
        mirrors={name: _mirror(name, mirror, said.architectures) for name, mirror in said.mirrors.items()},
        shared=said.shared,
        files={entry.name: KeptFile(entry.name, Kind(entry.kind), entry.sha256) for entry in said.files},
        keep_days=said.gc.keep_days,
        document=document,
    )


def _mirror(name: str, said: "_Mirror", architectures: list[str]) -> Mirror:
    query = " ".join(said.filter.split()) if said.filter is not None else None
    return Mirror(
        name, said.url, tuple(said.suites), tuple(said.components), tuple(said.architectures or architectures),
        said.key, query, tuple(said.exclude), said.with_dependencies,
    )  # fmt: skip


def _prose(path: Path) -> bool:
    """A user ID has its address in angle brackets, a query compares versions with them."""
    return path[:1] in {("signing",), ("shared",)} or path[-1:] == ("filter",)


def _faults(document: Document, said: "_Archive | _Lists") -> Iterator[Fault]:
    for name, mirror in said.mirrors.items():
        if name == INCOMING:
            yield document.fault(("mirrors", name), "is the name of what the team builds", "choose another name")
        for path, *fault in _mirror_faults(mirror, said.architectures):
            yield document.fault(("mirrors", name, *path), *fault)
    seen: dict[str, int] = {}
    for index, entry in enumerate(said.files):
        if entry.name in seen:
            first = document.line("files", seen[entry.name])
            found = f'"{entry.name}" stands there twice, first in line {first}'
            yield document.fault(("files", index, "name"), found, "each file has a name of its own")
        seen.setdefault(entry.name, index)


def _mirror_faults(mirror: "_Mirror", architectures: list[str]) -> Iterator[tuple[Path, str, str]]:
    """Place in the mirror, what is wrong, what to do."""
    flat = [suite for suite in mirror.suites if suite.endswith("/")]
    for index, suite in enumerate(mirror.suites):
        if suite in mirror.suites[:index]:
            yield ("suites", index), f'"{suite}" stands there twice', "keep one"
    if flat and mirror.components:
        yield ("components",), f"{flat[0]} is a flat archive, which has no components", "write []"
    if len(flat) < len(mirror.suites) and not mirror.components:
        yield ("components",), "none is named", "name those to mirror, as in sources.list"
    for index, architecture in enumerate(mirror.architectures or ()):
        if architectures and architecture not in architectures:
            remedy = f"known: {', '.join(architectures)}"
            yield ("architectures", index), f"the archive is not for {architecture}", remedy
    if mirror.filter is not None and (unclosed := _unclosed(mirror.filter)):
        yield ("filter",), unclosed, "aptly's package query syntax"


def _unclosed(query: str) -> str:
    """What is wrong with a query that aptly would refuse hours later; quotes and brackets only."""
    depth = 0
    for letter in query:
        depth += (letter == "(") - (letter == ")")
        if depth < 0:
            return "a bracket is closed that was never opened"
    if not query.strip():
        return "an empty filter"
    return "a bracket is never closed" if depth else ""


# --- the border -----------------------------------------------------------------------------------

_name = matching(
    re.compile(r"[a-z0-9]([a-z0-9._-]{0,62}[a-z0-9])?"), "name here", "lower-case letters, digits, and . _ - inside"
)
_directory = matching(
    re.compile(r"(/(?!\.{1,2}(/|$))[A-Za-z0-9._@+-]+)+"),
    "directory of the archive",
    "an absolute path without . and ..",
)
_url = matching(re.compile(r"https?://[^\s/]+(/\S*)?"), "address of an archive", "http:// or https://, host and path")
_word = matching(
    re.compile(r"[A-Za-z0-9][A-Za-z0-9._/-]*"), "name here", "letters, digits, and . _ / - after the first"
)
_suite = matching(re.compile(r"(\./)?[A-Za-z0-9][A-Za-z0-9._/-]*|\./|/"), "suite", "as in sources.list")
_architecture = matching(re.compile(r"amd64|arm64"), "architecture known here", "amd64 or arm64")
_glob = matching(  # a bracket or a comma would end aptly's term and begin another
    re.compile(r"[a-z0-9*?][a-z0-9+.*?-]*"), "pattern of package names", "lower-case letters, digits, + - . and * ?"
)
_digest = matching(DIGEST, "digest", "sha256: and 64 hexadecimal digits")
_file_name = matching(
    re.compile(r"[A-Za-z0-9][A-Za-z0-9._+~-]*"), "file name", "letters, digits and . _ + ~ -, without directories"
)


def _some(value: list[str]) -> list[str]:
    if not value:
        raise wrong("found an empty list", "name at least one")
    return value


def _line(value: str) -> str:
    if not value.strip() or any(not letter.isprintable() for letter in value):
        raise wrong("found no line of text", "write one")
    return value


def _kind(value: str) -> str:
    if value not in set(Kind):
        raise wrong(f'"{value}" is no kind of file', nearest(value, [kind.value for kind in Kind]))
    return value


Suites = Annotated[list[Annotated[str, _suite]], AfterValidator(_some)]
Architectures = Annotated[list[Annotated[str, _architecture]], AfterValidator(_some)]
Line = Annotated[str, AfterValidator(_line)]


class _Mirror(Strict):
    url: Annotated[str, _url]
    suites: Suites
    components: list[Annotated[str, _word]]
    architectures: Architectures | None = None
    key: Annotated[str, inner_path]
    filter: str | None = None
    exclude: list[Annotated[str, _glob]] = Field(default_factory=list)
    with_dependencies: bool = False


class _Signing(Strict):
    user: Line
    key: Annotated[str, inner_path]


class _File(Strict):
    name: Annotated[str, _file_name]
    kind: Annotated[str, AfterValidator(_kind)]
    sha256: Annotated[str, _digest]


class _Gc(Strict):
    keep_days: Annotated[int, Field(ge=0)] = 30


class _Lists(BaseModel):
    """What has faults beyond a single value, whatever else is wrong."""

    model_config = ConfigDict(strict=True, frozen=True, extra="ignore")

    architectures: Architectures = Field(default_factory=list)
    mirrors: dict[Annotated[str, _name], _Mirror] = Field(default_factory=dict)
    files: list[_File] = Field(default_factory=list)


class _Archive(Strict):
    archive: Annotated[str, _name]
    directory: Annotated[str, _directory]
    url: Annotated[str, _url]
    component: Annotated[str, _word] = "main"
    architectures: Architectures
    signing: _Signing
    mirrors: dict[Annotated[str, _name], _Mirror] = Field(default_factory=dict)
    shared: dict[Annotated[str, _glob], Line] = Field(default_factory=dict)
    files: list[_File] = Field(default_factory=list)
    gc: _Gc = Field(default_factory=_Gc)
