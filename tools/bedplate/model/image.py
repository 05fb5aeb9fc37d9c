"""The definition of a training image: what it is built from, what must be in it, and where it is published.

- What nobody knows yet is written `unknown`: such a definition is read and linted, and never built.
- What the image must hold (`expects`) is compared with what is found in the built one (decide/images/versions.py).
- Its Dockerfile takes what is not in its own directory from contexts with a name (`COPY --from=NAME`): `upstream` and
  `source-NAME` are the files of a commit, `built-from` is one file that names every commit.
"""

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Annotated, Literal

from pydantic import Field

from bedplate.model.canonical import DIGEST
from bedplate.model.faults import BadInput, Fault
from bedplate.model.schema import Strict, checked
from bedplate.model.text import Document, Path, read_yaml
from bedplate.model.wording import exact_faults, inner_path, matching

UNKNOWN = "unknown"
COMMIT = re.compile(r"[0-9a-f]{40}")
CUDA = "cuda"  # the name in `expects` that toolkits of layers are compared with
UPSTREAM, BUILT_FROM = "upstream", "built-from"  # contexts by which a definition's Dockerfile gets at them
_ARGUMENT = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
_TAG = r"[A-Za-z0-9_][A-Za-z0-9._-]{0,127}"
_REPOSITORY = r"[a-z0-9.-]+(:[0-9]+)?(/[a-z0-9]+([._-]+[a-z0-9]+)*)+"
_GIT = r"https://[a-z0-9.-]+(:[0-9]+)?(/[A-Za-z0-9._-]+)+"
_VERSION = r"[0-9A-Za-z][0-9A-Za-z.+:~-]*"

_name = matching(
    re.compile(rf"[a-z0-9]+([._-][a-z0-9]+)*(:{_TAG})?"),
    "image name",
    "lower-case letters, digits, and . _ - between them",
)
_repository = matching(re.compile(_REPOSITORY), "repository", "HOST[:PORT]/PATH, without tag and digest")
_base = matching(re.compile(rf"{_REPOSITORY}(:{_TAG})?"), "base", "HOST[:PORT]/PATH[:TAG], without digest")
_digest = matching(re.compile(rf"{DIGEST.pattern}|{UNKNOWN}"), "digest", "sha256: and 64 hexadecimal digits")
_commit = matching(
    re.compile(rf"{COMMIT.pattern}|{UNKNOWN}"), "full commit", "40 hexadecimal digits, as `git rev-parse` says it"
)
_git = matching(re.compile(_GIT), "address of a git repository", "https://HOST/PATH")
_ref = matching(re.compile(r"[A-Za-z0-9][A-Za-z0-9._/-]*"), "tag", "a tag of the repository")
_stage = matching(
    re.compile(r"[A-Za-z][A-Za-z0-9._-]*"), "stage", "a name that a FROM of the Dockerfile gives: AS NAME"
)
_version = matching(re.compile(_VERSION), "version", "the exact version, as the image itself says it")
_pin = matching(
    re.compile(rf"{_REPOSITORY}:{_TAG}|https?://[^\s#*$]+"),
    "image with a tag, nor an address",
    "HOST/PATH:TAG in full (docker.io/library/debian:12), or the https:// address that an ADD names",
)
_place = matching(re.compile(r"(/[A-Za-z0-9._+-]+)+"), "directory of the image", "an absolute path")
type _Network = Literal["none", "host"]


class _Base(Strict):
    reference: Annotated[str, _base]
    digest: Annotated[str, _digest]


class _Upstream(Strict):
    repository: Annotated[str, _git]
    tag: Annotated[str, _ref]
    commit: Annotated[str, _commit]
    target: Annotated[str, _stage]
    dockerfile: Annotated[str, inner_path] = "Dockerfile"
    base_argument: str = "FROM_IMAGE_NAME"
    arguments: dict[str, str] = Field(default_factory=dict)
    lockfiles: dict[Annotated[str, inner_path], Annotated[str, _digest]] = Field(default_factory=dict)
    pins: dict[Annotated[str, _pin], Annotated[str, _digest]] = Field(default_factory=dict)
    empty: list[Annotated[str, inner_path]] = Field(default_factory=list)
    network: _Network = "host"
    code: Annotated[str, _place] | None = None


class _Layer(Strict):
    kind: Literal["package", "source"]
    path: Annotated[str, inner_path] | None = None
    repository: Annotated[str, _git] | None = None
    commit: Annotated[str, _commit] | None = None
    toolkit: Annotated[str, _version] | None = None


class _Image(Strict):
    name: Annotated[str, _name]
    repository: Annotated[str, _repository]
    base: _Base
    dockerfile: Annotated[str, inner_path] = "Dockerfile"
    arguments: dict[str, str] = Field(default_factory=dict)
    network: _Network = "host"
    upstream: _Upstream | None = None
    layers: list[_Layer] = Field(default_factory=list)
    expects: dict[str, Annotated[str, _version]] = Field(default_factory=dict)


_NEEDS = {"package": ("path",), "source": ("repository", "commit", "toolkit")}


@dataclass(frozen=True)
class Upstream:
    """The recipe that our layers stand on, used as it is: dockerfile and target of a repository's commit.

    base_argument: the build argument by which its Dockerfile takes the base. lockfiles: path -> digest or unknown.
    pins: what it names by a tag or an address -> digest. empty: directories that it copies and that the commit lacks.
    network: what its RUN may reach, `none` or `host`. code: where in the image our Dockerfile puts the commit's files.
    """

    repository: str
    tag: str
    commit: str
    target: str
    dockerfile: str
    base_argument: str
    arguments: Mapping[str, str]
    lockfiles: Mapping[str, str]
    pins: Mapping[str, str]
    empty: tuple[str, ...]
    network: str
    code: str | None


@dataclass(frozen=True)
class Layer:
    """What we add: a `package` of the site (path), or a `source` to compile (repository, commit, toolkit)."""

    kind: str
    path: str | None = None
    repository: str | None = None
    commit: str | None = None
    toolkit: str | None = None

    @property
    def context(self) -> str | None:
        """Of a source: the name that the Dockerfile takes its files from."""
        return f"source-{_last(self.repository)}" if self.repository else None


@dataclass(frozen=True)
class ImageDefinition:
    """name: of its files and its build record; called: name and tag as people write them.

    network: what RUN of the definition's own Dockerfile may reach, `none` or `host`.
    """

    name: str
    repository: str
    base_reference: str
    base_digest: str
    dockerfile: str = "Dockerfile"
    arguments: Mapping[str, str] = field(default_factory=dict)
    called: str = ""
    base_tag: str | None = None
    upstream: Upstream | None = None
    layers: tuple[Layer, ...] = ()
    expects: Mapping[str, str] = field(default_factory=dict)
    network: str = "host"
    document: Document = field(default_factory=lambda: Document("image.yml", {}), repr=False, compare=False)

    @property
    def base(self) -> str:
        """With its tag, for people."""
        return self.base_reference + (f":{self.base_tag}" if self.base_tag else "")

    @property
    def sources(self) -> tuple[tuple[int, Layer], ...]:
        """The layers of kind `source`, with their places in `layers`."""
        return tuple((index, layer) for index, layer in enumerate(self.layers) if layer.kind == "source")

    @property
    def contexts(self) -> tuple[str, ...]:
        """The names that the definition's Dockerfile may take files from."""
        named = [UPSTREAM] if self.upstream else []
        named += [layer.context for _, layer in self.sources if layer.context]
        return (*named, BUILT_FROM) if named else ()

    @property
    def taken(self) -> tuple[str, ...]:
        """Those of them that it must take files from: else they would be missing in the image."""
        optional = UPSTREAM if self.upstream and self.upstream.code is None else None
        return tuple(name for name in self.contexts if name != optional)

    @property
    def unknown(self) -> tuple[Fault, ...]:
        """What nobody has written yet, each with what finds it out; while there is one, nothing is built."""
        return tuple(
            self.document.fault(path, f"{UNKNOWN}: nobody has written {what}", remedy)
            for path, value, what, remedy in self._pins()
            if value == UNKNOWN
        )

    def _pins(self) -> Iterator[tuple[Path, str | None, str, str]]:
        yield ("base", "digest"), self.base_digest, f"which digest {self.base} has", _look(self.base)
        if up := self.upstream:
            look = f"git ls-remote {up.repository} 'refs/tags/{up.tag}^{{}}' refs/tags/{up.tag}"
            yield ("upstream", "commit"), up.commit, f"which commit the tag {up.tag} is", look
            for path, value in up.lockfiles.items():
                yield ("upstream", "lockfiles", path), value, f"which {path} that commit has", f"sha256sum {path}"
            for path, value in up.pins.items():
                find = f"curl -fsSL {path} | sha256sum" if "://" in path else _look(path)
                yield ("upstream", "pins", path), value, f"which digest {path} has", find
        for index, layer in enumerate(self.layers):
            yield ("layers", index, "commit"), layer.commit, "which commit is built", "git rev-parse HEAD there"


def parse_image(text: str, file: str) -> ImageDefinition:
    """Read images/DIR/image.yml.

    Raises:
        BadInput: every fault of the file.
    """
    document = read_yaml(text, file)
    result = checked(_Image, document)
    faults = [*document.faults, *result.faults, *exact_faults(document)]
    image = result.value
    if image:
        faults += _argument_faults(document, ("arguments",), image.arguments, "BASE")
        if image.upstream:
            theirs = image.upstream
            faults += _argument_faults(document, ("upstream", "arguments"), theirs.arguments, theirs.base_argument)
        faults += _layer_faults(document, image)
    if faults or image is None:
        raise BadInput(faults)
    reference, tag = _split_tag(image.base.reference)
    up = image.upstream
    return ImageDefinition(
        image.name.replace(":", "-"),
        image.repository,
        reference,
        image.base.digest,
        image.dockerfile,
        image.arguments,
        image.name,
        tag,
        Upstream(**{**dict(up), "empty": tuple(up.empty)}) if up else None,
        tuple(Layer(**dict(layer)) for layer in image.layers),
        image.expects,
        image.network,
        document,
    )


def _look(reference: str) -> str:
    return f"skopeo inspect --raw docker://{reference} | sha256sum"


def _last(repository: str) -> str:
    return repository.rstrip("/").rpartition("/")[2].removesuffix(".git").lower()


def _split_tag(reference: str) -> tuple[str, str | None]:
    repository, colon, tag = reference.rpartition(":")
    return (repository, tag) if colon and "/" not in tag else (reference, None)


def _argument_faults(document: Document, path: Path, arguments: Mapping[str, str], builders: str) -> Iterator[Fault]:
    for name in arguments:
        if name == builders:
            yield document.fault((*path, name), f"the builder sets {name} itself", "remove it: base says it")
        elif not _ARGUMENT.fullmatch(name):
            yield document.fault((*path, name), "no name of a build argument", "letters, digits and _")


def _layer_faults(document: Document, image: _Image) -> Iterator[Fault]:
    named: dict[str, int] = {}
    for index, layer in enumerate(image.layers):
        if layer.kind == "source" and layer.repository:
            first = named.setdefault(_last(layer.repository), index)
            if first != index:
                found = f"is called {_last(layer.repository)}, as that of layers[{first}] is"
                yield document.fault(("layers", index, "repository"), found, "one commit of a repository is enough")
        said = {key: value for key, value in layer if key != "kind" and value is not None}
        for key in _NEEDS[layer.kind]:
            if key not in said and ("layers", index, key) not in document.lines:
                yield document.fault(("layers", index), f'"{key}" is missing: a layer of kind {layer.kind}', "add it")
        for key in said:
            if key not in _NEEDS[layer.kind]:
                found = f"a layer of kind {layer.kind} has no {key}"
                yield document.fault(("layers", index, key), found, f"it has: {', '.join(_NEEDS[layer.kind])}")
        if layer.toolkit:
            yield from _toolkit_faults(document, ("layers", index, "toolkit"), layer.toolkit, image.expects.get(CUDA))


def _toolkit_faults(document: Document, path: Path, toolkit: str, cuda: str | None) -> Iterator[Fault]:
    """An operator that is compiled with another CUDA than the image's fails when a job loads it, or worse, later."""
    if cuda is None:
        yield document.fault(path, f"CUDA {toolkit}, and nobody says which one the image has", "add expects: {cuda: …}")
    elif toolkit != cuda:
        where = f"{document.file}:{document.line('expects', CUDA)}"
        found = f"CUDA {toolkit}, but the image has {cuda} ({where})"
        yield document.fault(path, found, "compile with the image's own toolkit")
