"""The build record of an image: what was built from what, and which stages are done.

builds/NAME.json, one image one file, written whole after each stage:
- built: the definition's hash, base, builder and the digests are known (`built_at`);
- pushed: the registry has answered with exactly these bytes (`pushed_at`);
- imported: the squashfs made from the registry's image lies beside the site (`squashfs`, `imported_at`).
A stage is never done before the one above it, and building again forgets the later ones.

A record says what was built from which bytes, never that a rebuild is the same: `reproduced` is `yes` only where the
image was built twice and both had one digest.
"""

import json
import re
from collections.abc import Collection, Mapping
from dataclasses import asdict, dataclass, field, replace
from enum import StrEnum
from typing import Annotated, Any, Literal

from pydantic import Field, StringConstraints, ValidationError

from bedplate.model.canonical import DIGEST, identity, sha256
from bedplate.model.faults import BadInput, Fault
from bedplate.model.schema import Strict
from bedplate.model.text import dotted, parse_yaml

SCHEMA = 2
_REMEDY = "a build record is written by `bedplate image`, never by hand: remove it, and build the image again"
AT = re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\dZ")


class Stage(StrEnum):
    """In the order in which they are done; the value is also the ledger's word: image.built."""

    BUILT = "built"
    PUSHED = "pushed"
    IMPORTED = "imported"


class Answer(StrEnum):
    """Whether a second build gave the same digest."""

    YES = "yes"
    NO = "no"
    NOT_TRIED = "not tried"


@dataclass(frozen=True)
class Base:
    """digest: what the definition pins; manifest_digest: of the platform; index_digest: of the index it is out of.

    index_digest None: the definition pins the platform's manifest itself (or the record is of a time that did not ask).
    """

    reference: str
    digest: str
    manifest_digest: str
    index_digest: str | None = None


@dataclass(frozen=True)
class Builder:
    """The programs that made the bytes: the same inputs give the same digest with the same versions only.

    programs: what else had a hand in it (skopeo, git), with its version.
    """

    name: str
    version: str
    programs: Mapping[str, str]


@dataclass(frozen=True)
class Step:
    """One Dockerfile that was built: `upstream`, then `image`.

    contexts: other directories that it takes files from, by name, with their hashes. made_empty: directories that were
    made because the Dockerfile copies them and the commit lacks them. network: what RUN could reach.
    """

    name: str
    dockerfile: str
    target: str | None
    arguments: Mapping[str, str]
    network: str
    context_sha256: str
    contexts: Mapping[str, str] = field(default_factory=dict)
    made_empty: tuple[str, ...] = ()


@dataclass(frozen=True)
class Source:
    """A commit that is in the image. head: `git rev-parse HEAD` of the checkout; tree: git's hash of the files.

    name: of the context. left_out: paths of the commit that git hands out to nobody.
    """

    name: str
    repository: str
    commit: str
    head: str
    tree: str
    tag: str | None = None
    toolkit: str | None = None
    left_out: tuple[str, ...] = ()


@dataclass(frozen=True)
class Beside:
    """A file beside the record; path: relative to the site."""

    path: str
    sha256: str


@dataclass(frozen=True)
class Reproduced:
    """says: what differs first, and why that is likely."""

    answer: Answer = Answer.NOT_TRIED
    says: str = ""


@dataclass(frozen=True)
class Wheel:
    """A package that the commit and our own lock both have: the lock's wheel against the commit, file by file.

    sha256: of the wheel, None: it was not compared, and `says` why. differ: path -> sha256 of both. compiled,
    wheel_only, commit_only: in one of them (decide/images/wheel.py).
    """

    name: str
    version: str
    sha256: str | None
    says: str
    same: int = 0
    differ: Mapping[str, Mapping[str, str]] = field(default_factory=dict)
    compiled: tuple[str, ...] = ()
    wheel_only: tuple[str, ...] = ()
    commit_only: tuple[str, ...] = ()


@dataclass(frozen=True)
class Squashfs:
    """path: relative to the site; options: of mksquashfs; uri: imported from, enters some versions' bytes."""

    sha256: str
    size: int
    path: str
    tool: str
    options: str
    uri: str


@dataclass(frozen=True)
class BuildRecord:
    name: str
    definition_sha256: str
    repository: str
    base: Base
    builder: Builder
    index_digest: str | None
    manifest_digest: str
    config_digest: str
    media_type: str
    built_at: str
    platform: str = "linux/amd64"
    diff_ids: tuple[str, ...] = ()
    steps: tuple[Step, ...] = ()
    upstream: Source | None = None
    sources: tuple[Source, ...] = ()
    lockfiles: Mapping[str, str] = field(default_factory=dict)
    wheels: tuple[Wheel, ...] = ()
    versions: Mapping[str, str] = field(default_factory=dict)
    reproduced: Reproduced = Reproduced()
    log: Beside | None = None
    provenance: Beside | None = None
    sbom: Beside | None = None
    squashfs: Squashfs | None = None
    pushed_at: str | None = None
    imported_at: str | None = None

    @property
    def stage(self) -> Stage:
        """The last one that is done."""
        return Stage.IMPORTED if self.imported_at else Stage.PUSHED if self.pushed_at else Stage.BUILT

    @property
    def reference(self) -> str:
        return f"{self.repository}@{self.manifest_digest}"

    def pushed(self, at: str) -> "BuildRecord":
        return replace(self, pushed_at=at, squashfs=None, imported_at=None)

    def imported(self, squashfs: Squashfs, at: str) -> "BuildRecord":
        if self.pushed_at is None:
            raise ValueError("an image is imported from the registry: push it first")
        return replace(self, squashfs=squashfs, imported_at=at)

    def as_of(self, stage: Stage) -> "BuildRecord":
        """The record as it was when a stage was done."""
        if stage is Stage.BUILT:
            return replace(self, pushed_at=None, squashfs=None, imported_at=None)
        return replace(self, squashfs=None, imported_at=None) if stage is Stage.PUSHED else self

    def document(self) -> dict[str, Any]:
        document: dict[str, Any] = json.loads(json.dumps({"schema": SCHEMA, **asdict(self)}))  # lists, as it is read
        # What was added later stands there only if it says something: locks name earlier records by their hash.
        if not document["wheels"]:
            del document["wheels"]
        if document["base"]["index_digest"] is None:
            del document["base"]["index_digest"]
        return document


def definition_sha256(image_yml: str, files: Mapping[str, bytes], executable: Collection[str] = ()) -> str:
    """The identity of an image's definition: what image.yml says, and every other file beside it.

    Comments and layout of image.yml do not count; names, bytes and the executable bit of the files do.

    Raises:
        BadInput: image.yml is no YAML that can be read.
    """
    return identity(
        {
            "schema": SCHEMA,
            "image": parse_yaml(image_yml, "image.yml").data,
            "files": {path: sha256(data) for path, data in files.items()},
            "executable": sorted(executable),
        }
    )


def record_text(record: BuildRecord) -> str:
    return json.dumps(record.document(), indent=2, sort_keys=True) + "\n"


type _Digest = Annotated[str, StringConstraints(pattern=f"^{DIGEST.pattern}$")]
type _At = Annotated[str, StringConstraints(pattern=f"^{AT.pattern}$")]
type _Commit = Annotated[str, StringConstraints(pattern="^[0-9a-f]{40}$")]
type _Text = Annotated[str, StringConstraints(min_length=1)]


class _Base(Strict):
    reference: _Text
    digest: _Digest
    manifest_digest: _Digest
    index_digest: _Digest | None = None


class _Builder(Strict):
    name: _Text
    version: _Text
    programs: dict[str, _Text]


class _Step(Strict):
    name: _Text
    dockerfile: _Text
    target: _Text | None
    arguments: dict[str, str]
    network: Literal["none", "host"]
    context_sha256: _Digest
    contexts: dict[str, _Digest]
    made_empty: list[_Text]


class _Source(Strict):
    name: _Text
    repository: _Text
    commit: _Commit
    head: _Commit
    tree: _Commit
    tag: _Text | None
    toolkit: _Text | None
    left_out: list[_Text]


class _Beside(Strict):
    path: Annotated[str, StringConstraints(pattern=r"^builds/[A-Za-z0-9._/-]+$")]
    sha256: _Digest


class _Reproduced(Strict):
    answer: Literal["yes", "no", "not tried"]
    says: str


class _Difference(Strict):
    wheel: _Digest
    commit: _Digest


class _Wheel(Strict):
    name: _Text
    version: _Text
    sha256: _Digest | None
    says: str
    same: Annotated[int, Field(ge=0)]
    differ: dict[str, _Difference]
    compiled: list[_Text]
    wheel_only: list[_Text]
    commit_only: list[_Text]


class _Squashfs(Strict):
    sha256: _Digest
    size: Annotated[int, Field(gt=0)]
    path: Annotated[str, StringConstraints(pattern=r"^artifacts/sha256-[0-9a-f]{64}\.sqsh$")]
    tool: _Text
    options: str
    uri: _Text


class _Record(Strict):
    # `schema` shadows a method of BaseModel
    schema_: Annotated[Literal[2], Field(alias="schema")]
    name: _Text
    definition_sha256: _Digest
    repository: _Text
    base: _Base
    builder: _Builder
    index_digest: _Digest | None
    manifest_digest: _Digest
    config_digest: _Digest
    media_type: _Text
    platform: _Text
    diff_ids: list[_Digest]
    steps: list[_Step]
    upstream: _Source | None
    sources: list[_Source]
    lockfiles: dict[str, _Digest]
    wheels: Annotated[list[_Wheel], Field(default_factory=list)]
    versions: dict[str, _Text]
    reproduced: _Reproduced
    log: _Beside | None
    provenance: _Beside | None
    sbom: _Beside | None
    squashfs: _Squashfs | None
    built_at: _At
    pushed_at: _At | None
    imported_at: _At | None


def parse_record(text: str, file: str) -> BuildRecord:
    """Read a build record.

    Raises:
        BadInput: every fault of the file.
    """
    try:
        document = json.loads(text)
    except (ValueError, RecursionError) as fault:
        line = fault.lineno if isinstance(fault, json.JSONDecodeError) else None
        raise BadInput([Fault(file, line, f"no JSON: {fault}", _REMEDY)]) from fault
    if not isinstance(document, dict):
        raise BadInput([Fault(file, 1, f"no build record but {type(document).__name__}", _REMEDY)])
    return read_record(document, file)


def read_record(document: Mapping[str, Any], file: str) -> BuildRecord:
    """Read a build record from its JSON document.

    Raises:
        BadInput: every fault of it.
    """
    if document.get("schema") == 1:
        raise BadInput([Fault(file, None, "schema 1, which an earlier bedplate wrote", _REMEDY)])
    try:
        shape = _Record.model_validate(document)
    except ValidationError as wrong:
        raise BadInput(
            Fault(file, None, f"{dotted(tuple(error['loc']))}: {error['msg']}", _REMEDY) for error in wrong.errors()
        ) from None
    faults = []
    if (shape.squashfs is None) != (shape.imported_at is None):
        faults.append(Fault(file, None, "squashfs and imported_at: only one of the two is there", _REMEDY))
    if shape.imported_at and not shape.pushed_at:
        faults.append(Fault(file, None, "imported_at without pushed_at", _REMEDY))
    if shape.squashfs and shape.squashfs.sha256.removeprefix("sha256:") not in shape.squashfs.path:
        faults.append(Fault(file, None, "squashfs.path is not named by squashfs.sha256", _REMEDY))
    if faults:
        raise BadInput(faults)
    said = shape.model_dump()
    return BuildRecord(**{
        **{key: value for key, value in said.items() if key != "schema_"},
        "base": Base(**said["base"]),
        "builder": Builder(**said["builder"]),
        "diff_ids": tuple(said["diff_ids"]),
        "steps": tuple(Step(**{**step, "made_empty": tuple(step["made_empty"])}) for step in said["steps"]),
        "upstream": _source(said["upstream"]) if said["upstream"] else None,
        "sources": tuple(map(_source, said["sources"])),
        "wheels": tuple(map(_wheel, said["wheels"])),
        "reproduced": Reproduced(Answer(said["reproduced"]["answer"]), said["reproduced"]["says"]),
        **{key: Beside(**said[key]) if said[key] else None for key in ("log", "provenance", "sbom")},
        "squashfs": Squashfs(**said["squashfs"]) if said["squashfs"] else None,
    })  # fmt: skip


def _source(said: Mapping[str, Any]) -> Source:
    return Source(**{**said, "left_out": tuple(said["left_out"])})


def _wheel(said: Mapping[str, Any]) -> Wheel:
    lists = {key: tuple(said[key]) for key in ("compiled", "wheel_only", "commit_only")}
    return Wheel(**{**said, **lists})
