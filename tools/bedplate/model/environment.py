"""An environment as it is asked for: what every layer should be, before it is resolved to bytes."""

import re
from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass, field
from itertools import pairwise
from typing import Annotated, Any

from pydantic import AfterValidator

from bedplate.model.canonical import identity
from bedplate.model.faults import BadInput, Fault
from bedplate.model.layers import Layer
from bedplate.model.policy import Policy, PolicyShape
from bedplate.model.schema import Checked, Strict, checked, meant, nearest, wrong
from bedplate.model.text import Document, Path, read_yaml
from bedplate.model.wording import exact_faults, inner_path, matching

_ENVIRONMENT = re.compile(r"[A-Za-z0-9]([A-Za-z0-9._-]{0,62}[A-Za-z0-9])?")
_VALUE_NAME = re.compile(r"[a-z][a-z0-9_]*")  # becomes a variable of the templates

# What a managed layer may say; it must say at least one of these.
ASKED: Mapping[Layer, tuple[str, ...]] = dict.fromkeys(Layer, ("packages",)) | {
    Layer.HARDWARE: ("models",),
    Layer.OS: ("distribution", "release", "packages"),
    Layer.KERNEL: ("packages", "command_line"),
    Layer.SCHEDULER: ("packages", "controller"),
    Layer.IMAGE: ("definition",),
    Layer.CONFIG: ("values",),
}


@dataclass(frozen=True)
class Archive:
    url: str
    suite: str
    components: tuple[str, ...]
    key: str
    """The public key that signs the archive, relative to the site."""


@dataclass(frozen=True)
class LayerSpec:
    """What is asked for of one layer; `unmanaged` is the reason why nothing is."""

    unmanaged: str | None = None
    packages: Mapping[str, str] = field(default_factory=dict)
    models: tuple[str, ...] = ()
    distribution: str | None = None
    release: str | None = None
    definition: str | None = None
    values: Mapping[str, str] = field(default_factory=dict)
    command_line: tuple[str, ...] = ()
    """What the kernel's command line says besides what the machine itself needs to boot."""
    controller: str | None = None
    """The environment of the Slurm controllers that these nodes belong to."""

    @property
    def managed(self) -> bool:
        return self.unmanaged is None


@dataclass(frozen=True)
class RuleException:
    """A rule that does not hold here, on a named person's word."""

    rule: str
    reason: str
    approved_by: str


@dataclass(frozen=True)
class Environment:
    name: str
    description: str
    kinds: tuple[str, ...]
    archive: Archive
    layers: Mapping[Layer, LayerSpec]
    policy: Policy
    document: Document = field(compare=False, repr=False)
    exceptions: tuple[RuleException, ...] = ()

    def spec(self) -> dict[str, Any]:
        """Everything that decides what a node gets, as a JSON document; not the description and policy."""
        said = {
            "environment": self.name,
            "kinds": sorted(self.kinds),
            "archive": {
                "url": self.archive.url,
                "suite": self.archive.suite,
                "components": list(self.archive.components),
                "key": self.archive.key,
            },
            "layers": {layer.value: _spec(layer, spec) for layer, spec in self.layers.items()},
        }
        return said | ({"exceptions": self.exception_documents()} if self.exceptions else {})

    def exception_documents(self) -> list[dict[str, str]]:
        """The exceptions as they stand in a lock."""
        return [asdict(exception) for exception in self.exceptions]

    @property
    def spec_sha256(self) -> str:
        """What a lock holds of the environment file that it was resolved from."""
        return identity(self.spec())

    def packages(self) -> dict[str, tuple[Layer, str]]:
        """The packages that are asked for: name to layer and version."""
        return {
            name: (layer, version) for layer, spec in self.layers.items() for name, version in spec.packages.items()
        }


def _spec(layer: Layer, spec: LayerSpec) -> dict[str, Any]:
    if spec.unmanaged is not None:
        return {"unmanaged": spec.unmanaged}
    said: dict[str, Any] = {}
    for name in ASKED[layer]:
        value = getattr(spec, name)
        if isinstance(value, Mapping):
            said[name] = dict(value)
        elif isinstance(value, tuple):
            said[name] = list(value)
        elif value is not None:
            said[name] = value
    return said


# --- the border -----------------------------------------------------------------------------------


_url = matching(re.compile(r"https?://[^\s/]+(/\S*)?"), "address of an archive", "http:// or https://, host and path")
_word = matching(
    re.compile(r"[A-Za-z0-9][A-Za-z0-9._/-]*"), "name here", "letters, digits, and . _ / - after the first"
)
_suite = matching(re.compile(r"(\./)?[A-Za-z0-9][A-Za-z0-9._/-]*|\./|/"), "suite", "as in sources.list")
_definition = matching(
    re.compile(r"images/[A-Za-z0-9][A-Za-z0-9._-]*"), "definition of an image", "images/DIR, a directory of the site"
)
_package = matching(  # Debian policy 5.6.1
    re.compile(r"[a-z0-9][a-z0-9+.-]+"), "name of a Debian package", "lower-case letters, digits, and + - ."
)
_version = matching(  # Debian policy 5.6.12
    re.compile(r"([0-9]+:)?[0-9][A-Za-z0-9.+~-]*"),
    "exact version",
    "a full Debian or upstream version, without patterns",
)


_rule = matching(re.compile(r"[A-Z][A-Z0-9]*(-[A-Z0-9]+)+"), "id of a rule", "as `bedplate check --rules` lists them")
_argument = matching(  # no white space, quotes or $: it passes through GRUB's shell
    re.compile(r"[A-Za-z0-9][A-Za-z0-9._=,:/@+-]*"), "word of a kernel command line", "one NAME or NAME=VALUE a word"
)


def _some(value: list[str]) -> list[str]:
    if not value:
        raise wrong("found an empty list", "name at least one")
    return value


def _text(value: str) -> str:
    if not value.strip():
        raise wrong("found no text", "write the reason")
    return value


Word = Annotated[str, _word]
Words = Annotated[list[Word], AfterValidator(_some)]


class _Archive(Strict):
    url: Annotated[str, _url]
    suite: Annotated[str, _suite]
    components: list[Word]
    key: Annotated[str, inner_path]


class _Layer(Strict):
    unmanaged: Annotated[str, AfterValidator(_text)] | None = None
    packages: dict[Annotated[str, _package], Annotated[str, _version]] | None = None
    models: Words | None = None
    distribution: Word | None = None
    release: Word | None = None
    definition: Annotated[str, _definition] | None = None
    values: dict[str, str] | None = None
    command_line: list[Annotated[str, _argument]] | None = None
    controller: Word | None = None


class _Exception(Strict):
    rule: Annotated[str, _rule]
    reason: Annotated[str, AfterValidator(_text)]
    approved_by: Annotated[str, AfterValidator(_text)]


class _Environment(Strict):
    """Everything may be absent here: one missing section must not hide the faults of the others."""

    environment: str | None = None
    description: str = ""
    kinds: Words | None = None
    archive: _Archive | None = None
    layers: dict[str, _Layer] | None = None
    exceptions: list[_Exception] | None = None
    rollout: PolicyShape | None = None


_REQUIRED = ("environment", "kinds", "archive", "layers", "rollout")


def parse_environment(text: str, file: str, *, name: str | None = None) -> Environment:
    """Read environments/NAME.yml.

    Raises:
        BadInput: every fault of the file.
    """
    document = read_yaml(text, file)
    result = checked(_Environment, document)
    shape = result.value
    faults = [*document.faults, *result.faults, *exact_faults(document, prose=_prose)]
    if shape is None:
        raise BadInput(faults)
    faults += _names(shape, result, document, name)
    faults += _archive(shape.archive, result, document)
    faults += _layers(shape, result, document)
    if faults:
        raise BadInput(faults)
    return _environment(shape, document)


def _prose(path: Path) -> bool:
    return path == ("description",) or path[-1:] == ("unmanaged",) or path[:1] == ("exceptions",)


def _names(shape: _Environment, result: Checked[_Environment], document: Document, name: str | None) -> Iterator[Fault]:
    for key in _REQUIRED:
        if getattr(shape, key) is None and result.whole(key):
            yield document.fault((), f'"{key}" is missing', "add it")
    said = shape.environment
    if said is not None and not _ENVIRONMENT.fullmatch(said):
        yield document.fault(("environment",), f'"{said}" is no name', "letters, digits, and . _ - between them")
    elif said is not None and name is not None and said != name:
        yield document.fault(("environment",), f'"{said}" in a file named {name}.yml', "rename one of the two")
    words = [exception.rule for exception in shape.exceptions or ()]
    for index, rule in enumerate(words):
        if rule in words[:index]:
            yield document.fault(("exceptions", index, "rule"), f"{rule} is lifted twice", "keep one, with its reason")
    for value in sorted({value for value in shape.kinds or () if (shape.kinds or []).count(value) > 1}):
        yield document.fault(("kinds",), f'"{value}" stands there twice', "keep one")


def _archive(archive: _Archive | None, result: Checked[_Environment], document: Document) -> Iterator[Fault]:
    if archive is None:
        return
    path = ("archive", "components")
    flat, components = archive.suite.endswith("/"), archive.components
    if flat and components:
        found = f'components in the flat suite "{archive.suite}"'
        yield document.fault(path, found, "write [], or a suite that does not end in /")
    if not flat and not components and result.whole(*path):
        yield document.fault(path, "found an empty list", "name at least one")
    for value in sorted({value for value in components if components.count(value) > 1}):
        yield document.fault(path, f'"{value}" stands there twice', "keep one")


def _layers(shape: _Environment, result: Checked[_Environment], document: Document) -> Iterator[Fault]:
    layers = shape.layers
    if layers is None:
        return
    known = [layer.value for layer in Layer]
    given = {name: layer for name, layer in layers.items() if name in known}
    misspelt = {meant(name, known): name for name in layers if name not in known}
    for name in layers:
        if name not in known:
            yield document.fault(("layers", name), "unknown layer", nearest(name, known))
    for name in known:
        if name not in given and name not in misspelt and result.whole("layers", name):
            remedy = 'add what it should be, or "unmanaged: REASON"'
            yield document.fault(("layers",), f'layer "{name}" is missing', remedy)
    for first, second in pairwise(given):
        if known.index(second) < known.index(first):
            yield document.fault(("layers", second), f"stands after {first}", f"the order is {', '.join(known)}")
    for name, layer in given.items():
        yield from _layer(Layer(name), layer, result, document)
    yield from _package_duplicates(given, document)


def _package_duplicates(layers: Mapping[str, _Layer], document: Document) -> Iterator[Fault]:
    seen: dict[str, str] = {}
    for name, layer in layers.items():
        for package in layer.packages or ():
            if (first := seen.setdefault(package, name)) != name:
                found = f"the layer {first} asks for this package too"
                yield document.fault(("layers", name, "packages", package), found, "keep it in one layer")


def _layer(layer: Layer, spec: _Layer, result: Checked[_Environment], document: Document) -> Iterator[Fault]:
    path = ("layers", layer.value)
    said = [name for name in type(spec).model_fields if getattr(spec, name) is not None]
    managed = [name for name in said if name != "unmanaged"]
    for name in managed:
        if name not in ASKED[layer]:
            fault = document.fault(path, f'unknown key "{name}"', nearest(name, [*ASKED[layer], "unmanaged"]))
            yield Fault(fault.file, document.line(*path, name), fault.found, fault.remedy)
    if spec.unmanaged is not None and managed:
        yield document.fault(path, f"unmanaged, and yet asks for {', '.join(managed)}", "keep one of the two")
    if not said and result.whole(*path):
        yield document.fault(path, "asks for nothing", f'add {" or ".join(ASKED[layer])}, or "unmanaged: REASON"')
    if spec.packages == {} and result.whole(*path, "packages"):
        yield document.fault((*path, "packages"), "no package", 'name some, or "unmanaged: REASON"')
    for name in ("distribution", "release") if layer is Layer.OS and managed else ():
        if name not in said and result.whole(*path, name):
            yield document.fault(path, f'"{name}" is missing', "add it")
    for name in spec.values or ():
        if not _VALUE_NAME.fullmatch(name):
            yield document.fault((*path, "values", name), "no name of a value", "lower-case letters, digits and _")


def _environment(shape: _Environment, document: Document) -> Environment:
    assert shape.environment and shape.kinds and shape.archive and shape.layers and shape.rollout  # noqa: S101, PT018
    return Environment(
        name=shape.environment,
        description=shape.description,
        kinds=tuple(shape.kinds),
        archive=Archive(shape.archive.url, shape.archive.suite, tuple(shape.archive.components), shape.archive.key),
        layers={
            layer: LayerSpec(
                unmanaged=said.unmanaged,
                packages=said.packages or {},
                models=tuple(said.models or ()),
                distribution=said.distribution,
                release=said.release,
                definition=said.definition,
                values=said.values or {},
                command_line=tuple(said.command_line or ()),
                controller=said.controller,
            )
            for layer, said in ((layer, shape.layers[layer.value]) for layer in Layer)
        },
        policy=shape.rollout.policy(),
        document=document,
        exceptions=tuple(RuleException(said.rule, said.reason, said.approved_by) for said in shape.exceptions or ()),
    )
