"""The lock document: the exact bytes of every layer of an environment, and what makes a document one.

Invariants of every LockDocument:
- its identity is the sha256 of the RFC 8785 form, so neither order nor white space of the file matters;
- all twelve layers are there; one that is not managed says why;
- every kind of node has its packages, each with version, architecture, sha256 and size;
- digests are `sha256:` and 64 hex digits; there are no floats, no "latest", no placeholders;
- there are no Jinja delimiters: Ansible templates what it reads, and would make another value of such a one;
- an image is there exactly if the image layer is managed, configuration exactly if the config layer is.

The file is the same document as indented JSON with sorted keys:

    document = assemble(name="A", spec_sha256=..., kinds=..., archive=..., layers=..., packages=...,
                        image=None, config=...)
    lock = parse_lock(lock_text(document), "environments/A.lock.json")
    lock.identity            # sha256:...
    lock.packages("gpu")     # name -> Package
    lock.slice("gpu")        # what the roles of a GPU node get
"""

import copy
import functools
import json
import re
import reprlib
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import PurePosixPath
from typing import Annotated, Any

import yaml
from pydantic import AfterValidator, BaseModel, ConfigDict, Field, StringConstraints, ValidationError

from bedplate.model.canonical import DIGEST, identity
from bedplate.model.faults import BadInput, Fault
from bedplate.model.layers import Layer
from bedplate.model.text import dotted
from bedplate.model.wording import JINJA

SCHEMA = 1
SUFFIX = ".lock.json"
LARGEST_INTEGER = 2**53 - 1  # RFC 8785 writes numbers as IEEE doubles

_NAME = re.compile(r"[A-Za-z0-9](?:[A-Za-z0-9._-]*[A-Za-z0-9])?")
_PACKAGE = re.compile(r"[a-z0-9][a-z0-9+.-]+")  # Debian Policy 5.6.1
_VERSION = re.compile(r"(?:[0-9]+:)?[0-9A-Za-z][A-Za-z0-9.+~-]*")  # Debian Policy 5.6.12
_PLACEHOLDER = re.compile(r"todo|changeme|xxx+|tbd|<[^>]*>", re.IGNORECASE)
_LATEST = re.compile(r"(?:.*[:/@=])?latest", re.IGNORECASE)


@dataclass(frozen=True)
class Package:
    """One package of one kind of node: which bytes, and whether the environment asked for it by name."""

    name: str
    version: str
    architecture: str
    sha256: str
    size: int
    filename: str
    layer: str
    asked: bool

    def as_dict(self) -> dict[str, Any]:
        """What stands in the lock under the package's name."""
        return {key: value for key, value in asdict(self).items() if key != "name"}


@dataclass(frozen=True)
class Image:
    """The container image of an environment: the registry's digests and the artifact made of it.

    versions: of what matters in it, as its build found them: torch, megatron-core, nccl.
    """

    name: str
    reference: str  # repository@manifest_digest
    index_digest: str | None
    manifest_digest: str
    config_digest: str
    base_digest: str
    squashfs_sha256: str
    squashfs_size: int
    definition_sha256: str
    build_record_sha256: str
    versions: Mapping[str, str] = field(default_factory=dict)

    def as_dict(self) -> dict[str, Any]:
        """What stands in the lock; an image of which no version is known says none."""
        return {key: value for key, value in asdict(self).items() if key != "versions" or value}


@dataclass(frozen=True)
class LockDocument:
    """A checked lock. The document is the truth; the rest reads it."""

    document: Mapping[str, Any] = field(repr=False)
    identity: str

    @property
    def name(self) -> str:
        return str(self.document["environment"])

    @property
    def spec_sha256(self) -> str:
        return str(self.document["spec_sha256"])

    @property
    def kinds(self) -> Mapping[str, Mapping[str, str]]:
        """Kind of node -> its model and architecture."""
        return self.document["kinds"]  # type: ignore[no-any-return]

    @property
    def layers(self) -> Mapping[str, Mapping[str, Any]]:
        return self.document["layers"]  # type: ignore[no-any-return]

    def unmanaged(self, layer: Layer | str) -> str | None:
        """Why the environment does not manage a layer, or None when it does."""
        return self.layers[str(layer)].get("unmanaged")

    def packages(self, kind: str) -> dict[str, Package]:
        """Every package of a kind of node, by name.

        Raises:
            BadInput: the environment is not for that kind.
        """
        self._covers(kind)
        return {name: Package(name=name, **entry) for name, entry in sorted(self.document["packages"][kind].items())}

    @property
    def image(self) -> Image | None:
        entry = self.document["image"]
        return None if entry is None else Image(**entry)

    @property
    def exceptions(self) -> Sequence[Mapping[str, str]]:
        """The rules that do not hold here: rule, reason and who gave the word."""
        said: Sequence[Mapping[str, str]] = self.document.get("exceptions", ())
        return said

    def facts(self, kind: str) -> Mapping[str, str]:
        """What was read out of the packages of a kind of node when they were locked, by name: spank_abi."""
        said: Mapping[str, str] = self.document.get("facts", {}).get(kind, {})
        return said

    @property
    def values(self) -> Mapping[str, str]:
        """The environment-wide inputs of the templates."""
        return self.document["config"]["values"]  # type: ignore[no-any-return]

    @property
    def templates(self) -> Mapping[str, str]:
        """Path in the checkout of every template and roles/*/files.yml -> its sha256."""
        return {**self.document["config"]["templates"], **self.document["config"]["files_sha256"]}

    def slice(self, kind: str) -> dict[str, Any]:
        """What the roles of one kind of node get: the lock without the other kinds.

        Raises:
            BadInput: the environment is not for that kind.
        """
        self._covers(kind)
        part = {key: self.document[key] for key in ("environment", "archive", "layers", "image", "config")}
        part |= {"identity": self.identity, "kind": kind, **self.kinds[kind]}
        return copy.deepcopy(part | {"packages": self.document["packages"][kind]})

    def _covers(self, kind: str) -> None:
        if kind not in self.kinds:
            raise BadInput(f"environment {self.name} is for {', '.join(sorted(self.kinds))}: not for kind {kind}")


def assemble(
    *,
    name: str,
    spec_sha256: str,
    kinds: Mapping[str, Mapping[str, str]],
    archive: Mapping[str, Any],
    layers: Mapping[str, Mapping[str, Any]],
    packages: Mapping[str, Mapping[str, Package]],
    image: Image | None,
    config: Mapping[str, Mapping[str, str]],
    exceptions: Sequence[Mapping[str, str]] = (),
    facts: Mapping[str, Mapping[str, str]] | None = None,
) -> dict[str, Any]:
    """The document of a lock, from what its sources said; parse_lock judges it."""
    document: dict[str, Any] = {
        "schema": SCHEMA,
        "environment": name,
        "spec_sha256": spec_sha256,
        "kinds": {kind: dict(entry) for kind, entry in kinds.items()},
        "archive": {**archive, "components": list(archive["components"])},
        "layers": {str(layer): dict(entry) for layer, entry in layers.items()},
        "packages": {kind: {p: package.as_dict() for p, package in of.items()} for kind, of in packages.items()},
        "image": None if image is None else image.as_dict(),
        "config": {key: dict(entry) for key, entry in config.items()},
    }
    if exceptions:
        document["exceptions"] = [dict(entry) for entry in exceptions]
    if facts:
        document["facts"] = {kind: dict(said) for kind, said in facts.items()}
    return document


def layers_of(asked: Mapping[str, Layer], needs: Mapping[str, Collection[str]]) -> dict[str, Layer]:
    """The layer of every package: where it is asked for, else the first layer, in their order, that needs it.

    So nvidia-utils comes and goes with the driver, and libc6 with the operating system.
    """
    layers: dict[str, Layer] = {}
    for layer in Layer:
        heads = [name for name, of in asked.items() if of is layer]
        while heads:
            name = heads.pop()
            if name not in layers:
                layers[name] = layer
                heads += (needed for needed in needs.get(name, ()) if needed not in asked)
    return layers


def lock_text(document: Mapping[str, Any]) -> str:
    """The bytes of a lock file: indented JSON, sorted keys, a newline at the end."""
    return json.dumps(document, indent=2, sort_keys=True, ensure_ascii=False, allow_nan=False) + "\n"


def parse_lock(text: str, file: str) -> LockDocument:
    """Read a lock.

    Raises:
        BadInput: it is none; carries every fault.
    """
    document = _json(text, file)
    found = list(_faults(document))
    name = PurePosixPath(file).name
    if not found and name.endswith(SUFFIX) and name != document["environment"] + SUFFIX:
        what = f"the file is named {name}, the lock is of {document['environment']!r}"
        found.append((("environment",), what, "lock the other name, do not copy a lock"))
    if found:
        lines = _lines(text)
        raise BadInput(
            Fault(file, _nearest(lines, path), f"{dotted(path) or 'document'}: {what}", remedy)
            for path, what, remedy in found
        )
    return LockDocument(document, identity(document))


# What a lock file may hold: pydantic at the border, strict, nothing unknown.


def _digest(value: str) -> str:
    if not DIGEST.fullmatch(value):
        raise ValueError(f"no digest (sha256: and 64 hex digits): {value[:80]!r}")
    return value


def _relative(value: str) -> str:
    path = PurePosixPath(value)
    if path.is_absolute() or ".." in path.parts or str(path) != value:
        raise ValueError(f"no plain relative path: {value!r}")
    return value


def _matching(pattern: re.Pattern[str], what: str) -> AfterValidator:
    def check(value: str) -> str:
        if not pattern.fullmatch(value):
            raise ValueError(f"no {what}: {value[:80]!r}")
        return value

    return AfterValidator(check)


Text = Annotated[str, StringConstraints(min_length=1)]
Digest = Annotated[str, AfterValidator(_digest)]
Relative = Annotated[Text, AfterValidator(_relative)]
Name = Annotated[str, _matching(_NAME, "name")]
Size = Annotated[int, Field(ge=0, le=LARGEST_INTEGER)]


class _Part(BaseModel):
    model_config = ConfigDict(strict=True, frozen=True, extra="forbid")


class _Kind(_Part):
    model: Text
    architecture: Name


class _Archive(_Part):
    url: Text
    suite: Text
    components: list[Text]  # empty for a flat archive
    key_sha256: Digest
    inrelease_sha256: Digest


class _Layer(_Part):
    # "" is "not there": null has no meaning here, so it is refused
    unmanaged: Text = ""
    models: Annotated[list[Text], Field(min_length=1)] = []
    distribution: Text = ""
    release: Text = ""
    definition: Relative = ""
    command_line: Annotated[list[Text], Field(min_length=1)] = []
    controller: Text = ""


class _Exception(_Part):
    rule: Text
    reason: Text
    approved_by: Text


class _Package(_Part):
    version: Annotated[str, _matching(_VERSION, "Debian version")]
    architecture: Name
    sha256: Digest
    size: Size
    filename: Relative
    layer: Layer = Field(strict=False)
    asked: bool


class _Image(_Part):
    name: Name
    reference: Text
    index_digest: Digest | None
    manifest_digest: Digest
    config_digest: Digest
    base_digest: Digest
    squashfs_sha256: Digest
    squashfs_size: Size
    definition_sha256: Digest
    build_record_sha256: Digest
    versions: Annotated[dict[Text, Text], Field(min_length=1)] = {}


class _Config(_Part):
    templates: dict[Relative, Digest]
    files_sha256: dict[Relative, Digest]
    values: dict[Text, str]


class _Lock(_Part):
    # `schema` shadows a method of BaseModel
    schema_: Annotated[int, Field(ge=SCHEMA, le=SCHEMA, alias="schema")]
    environment: Name
    spec_sha256: Digest
    kinds: Annotated[dict[Name, _Kind], Field(min_length=1)]
    archive: _Archive
    layers: dict[Annotated[Layer, Field(strict=False)], _Layer]
    packages: dict[Name, dict[Annotated[str, _matching(_PACKAGE, "package name")], _Package]]
    image: _Image | None
    config: _Config
    exceptions: Annotated[list[_Exception], Field(min_length=1)] = []
    facts: dict[Name, dict[Text, str]] = {}


# The keys that a managed layer has, beyond its packages, which stand per kind.
_KEYS = {
    Layer.HARDWARE: {"models"}, Layer.OS: {"distribution", "release"}, Layer.IMAGE: {"definition"},
}  # fmt: skip
_OPTIONAL_KEYS = {Layer.KERNEL: {"command_line"}, Layer.SCHEDULER: {"controller"}}

type _Path = tuple[str | int, ...]
type _Found = tuple[_Path, str, str]  # where, what, remedy

_RELOCK = "a lock is written by `bedplate lock`, never by hand"


def _json(text: str, file: str) -> dict[str, Any]:
    """The JSON object in a text, as it stands: no duplicate keys, no floats."""
    faults: list[Fault] = []

    def pairs(items: list[tuple[str, Any]]) -> dict[str, Any]:
        seen: dict[str, Any] = {}
        for key, value in items:
            if key in seen:
                faults.append(Fault(file, None, f"key {key!r} stands twice", _RELOCK))
            seen[key] = value
        return seen

    def number(word: str) -> None:
        faults.append(Fault(file, None, f"number {word}: a lock holds whole numbers only", _RELOCK))

    try:
        document = json.loads(text, object_pairs_hook=pairs, parse_float=number, parse_constant=number)
    except json.JSONDecodeError as fault:
        raise BadInput([Fault(file, fault.lineno, f"no JSON: {fault.msg}", _RELOCK)]) from fault
    except (ValueError, RecursionError) as fault:  # an integer of thousands of digits; thousands of brackets
        raise BadInput([Fault(file, None, f"no JSON that can be read: {fault}", _RELOCK)]) from fault
    if faults:
        raise BadInput(faults)
    if not isinstance(document, dict):
        raise BadInput([Fault(file, 1, f"a lock is a JSON object, found {type(document).__name__}", _RELOCK)])
    return document


def _faults(document: dict[str, Any]) -> Iterator[_Found]:
    yield from _forbidden_words(document, ())
    try:
        lock = _Lock.model_validate(document)
    except ValidationError as fault:
        for error in fault.errors(include_url=False):
            what = error["msg"].removeprefix("Value error, ")
            if error["type"] not in {"value_error", "missing", "extra_forbidden"}:
                what += f", found {reprlib.repr(error['input'])}"
            yield tuple(part for part in error["loc"] if part != "[key]"), what, _RELOCK
        return
    yield from _layer_faults(lock)
    yield from _package_faults(lock)
    if (lock.image is None) != bool(lock.layers[Layer.IMAGE].unmanaged if Layer.IMAGE in lock.layers else ""):
        yield ("image",), "must be null exactly if the image layer is unmanaged", _RELOCK
    if lock.image and not lock.image.reference.endswith(f"@{lock.image.manifest_digest}"):
        yield ("image", "reference"), f"does not end with @{lock.image.manifest_digest}", _RELOCK
    if lock.layers.get(Layer.CONFIG, _Layer()).unmanaged and any(lock.config.model_dump().values()):
        yield ("config",), "has entries, but the config layer is unmanaged", _RELOCK


def _layer_faults(lock: _Lock) -> Iterator[_Found]:
    for layer in Layer:
        if layer not in lock.layers:
            yield ("layers", str(layer)), "is not there: each of the twelve is, or says unmanaged", _RELOCK
            continue
        given = lock.layers[layer].model_fields_set
        wanted = {"unmanaged"} if "unmanaged" in given else _KEYS.get(layer, set())
        optional = set() if "unmanaged" in given else _OPTIONAL_KEYS.get(layer, set())
        if not wanted <= given <= wanted | optional:
            yield (
                ("layers", str(layer)),
                f"has {sorted(given)}, a {layer} layer has {sorted(wanted)}",
                _RELOCK,
            )


def _package_faults(lock: _Lock) -> Iterator[_Found]:
    for kind in sorted(lock.facts.keys() - lock.kinds.keys()):
        yield ("facts", kind), f"facts of a kind that the lock is not for: {', '.join(sorted(lock.kinds))}", _RELOCK
    if set(lock.packages) != set(lock.kinds):
        yield ("packages",), f"are of {sorted(lock.packages)}, the lock is for {sorted(lock.kinds)}", _RELOCK
        return
    for kind, packages in lock.packages.items():
        for name, package in packages.items():
            place = ("packages", kind, name)
            if package.architecture not in {"all", lock.kinds[kind].architecture}:
                yield (
                    place,
                    f"is of {package.architecture}, the kind is {lock.kinds[kind].architecture}",
                    _RELOCK,
                )
            if package.asked and package.layer in lock.layers and lock.layers[package.layer].unmanaged:
                yield place, f"was asked for by layer {package.layer}, which is unmanaged", _RELOCK


def _forbidden_words(value: object, path: _Path) -> Iterator[_Found]:
    if isinstance(value, dict):
        for key, item in value.items():
            yield from _forbidden_words(item, (*path, key))
            if JINJA.search(key):
                yield (*path, key), "key has a Jinja delimiter", "Ansible would evaluate it"
    elif isinstance(value, list):
        for at, item in enumerate(value):
            yield from _forbidden_words(item, (*path, at))
    elif isinstance(value, str):
        if JINJA.search(value):
            yield path, f"has a Jinja delimiter: {value[:80]!r}", "Ansible would evaluate it"
        if _LATEST.fullmatch(value):
            yield path, f"names no bytes: {value[:80]!r}", "say which version"
        if _PLACEHOLDER.fullmatch(value):
            yield path, f"is a placeholder: {value[:80]!r}", "say what it should be"


@functools.lru_cache(maxsize=1)
def _lines(text: str) -> dict[_Path, int]:
    """Path of every value -> its line. JSON is YAML enough for that; only asked for when there are faults."""
    lines: dict[_Path, int] = {}

    def walk(node: yaml.Node, path: _Path) -> None:
        lines[path] = node.start_mark.line + 1
        if isinstance(node, yaml.MappingNode):
            for key, value in node.value:
                walk(value, (*path, str(key.value)))
        elif isinstance(node, yaml.SequenceNode):
            for at, value in enumerate(node.value):
                walk(value, (*path, at))

    try:
        root = yaml.compose(text, Loader=yaml.CSafeLoader)
        if root is not None:
            walk(root, ())
    except (yaml.YAMLError, ValueError, RecursionError):
        return {}
    return lines


def _nearest(lines: Mapping[_Path, int], path: _Path) -> int | None:
    """The line of a value, or of the nearest thing around it that is there."""
    return next((lines[path[:end]] for end in range(len(path), -1, -1) if path[:end] in lines), None)
