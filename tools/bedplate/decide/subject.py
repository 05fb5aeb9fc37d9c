"""What rules judge: the packages of one kind of node, and all that stands around them. Data only.

Three things are judged in the same way: an environment as it is asked for, the closure that it resolved to, and what
is installed on a machine that was there before. `None` stands for what nobody knows; a rule that needs it says so.
"""

import re
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass, field
from itertools import chain

from bedplate.decide.lockdoc import LockDocument
from bedplate.decide.packages import HEADS, Nvidia, nvidia, slurm
from bedplate.model.environment import Environment, LayerSpec, RuleException
from bedplate.model.hardware import HardwareModel
from bedplate.model.layers import Layer
from bedplate.model.versions import compare

CUDA_VALUE = "image_cuda"
"""The entry of config.values that says which CUDA the image holds, until an image's record says it."""


@dataclass(frozen=True, order=True)
class Place:
    file: str
    line: int | None = None


@dataclass(frozen=True)
class Item:
    """One package: its version, full or upstream; the layer that asks for it or brings it; where that stands."""

    name: str
    version: str
    layer: Layer
    place: Place
    asked: bool = True

    def __str__(self) -> str:
        brought = "" if self.asked else ", brought along as a dependency,"
        return f"{self.layer} {self.name} {self.version}{brought}"


@dataclass(frozen=True)
class ImageFacts:
    """What is known of what runs inside the image; `source` says from where."""

    cuda: str | None = None
    source: str = ""


@dataclass(frozen=True)
class Controllers:
    """What the Slurm controllers of these nodes are: an environment, or what the ledger says they run."""

    name: str
    packages: Mapping[str, str]
    source: str
    missing: str = ""
    """Why nothing is known of what they run, where that is so."""


@dataclass(frozen=True)
class Served:
    """Nodes that these controllers serve: slurmd's version on them."""

    nodes: str
    version: str


@dataclass(frozen=True)
class Machine:
    """What only a machine that runs can say.

    modules: those that are loaded; driver: the loaded one's version, "" if none is; texts: Slurm's plugin lines.
    """

    node: str
    kernel: str
    modules: frozenset[str]
    driver: str
    serial: str | None
    expected_serial: str
    plugstack: tuple[str, ...] = ()


@dataclass(frozen=True)
class Subject:
    """One kind of node under an environment, or one machine."""

    name: str
    kind: str
    place: Place
    packages: Mapping[str, Item]
    layers: Mapping[Layer, LayerSpec]
    layer_places: Mapping[Layer, Place]
    model: HardwareModel | None = None
    image: ImageFacts = ImageFacts()
    values: Mapping[str, tuple[str, Place]] = field(default_factory=dict)
    locked: bool = False
    """Whether the packages are a whole closure, with full versions."""
    facts: Mapping[str, str] = field(default_factory=dict)
    controllers: Controllers | None = None
    served: tuple[Served, ...] = ()
    previous: Mapping[str, Mapping[str, str]] = field(default_factory=dict)
    """Name of a lock that nodes ran before -> its packages for this kind."""
    exceptions: tuple[tuple[RuleException, Place], ...] = ()
    machine: Machine | None = None

    def of(self, names: Collection[str]) -> list[Item]:
        """The packages with these names that are there, in this order."""
        return [self.packages[name] for name in names if name in self.packages]

    def first(self, *names: str) -> Item | None:
        """The first of these packages that is there."""
        return next(iter(self.of(names)), None)

    def managed(self, layer: Layer) -> bool:
        return layer in self.layers and self.layers[layer].managed

    def at(self, layer: Layer) -> Place:
        """Where a layer stands."""
        return self.layer_places.get(layer, self.place)

    def nvidia(self) -> list[tuple[Item, Nvidia]]:
        """Every package that moves with the driver."""
        found = ((item, nvidia(item.name)) for item in self.packages.values())
        return [(item, said) for item, said in found if said is not None]

    def driver(self) -> Item | None:
        """The package that stands for the driver."""
        family = [(HEADS.index(said.stem), item.name, item) for item, said in self.nvidia() if said.stem in HEADS]
        return min(family, key=lambda entry: entry[:2])[2] if family else None

    def branch(self) -> int | None:
        """The driver's branch, by its version: 580.178.04 is of 580."""
        driver = self.driver()
        head = driver.version.split(":")[-1].split(".")[0] if driver else ""
        return int(head) if head.isdecimal() else None

    def slurm(self) -> list[Item]:
        """Every package of Slurm itself."""
        return [item for name, item in self.packages.items() if slurm(name)]

    def texts(self) -> Iterator[tuple[str, Place]]:
        """Everything that configures the environment beyond its packages."""
        machine = self.machine
        return chain(self.values.values(), ((line, self.place) for line in machine.plugstack) if machine else ())

    def lines(self, pattern: re.Pattern[str]) -> Iterator[tuple[str, Place]]:
        """What a pattern finds in those texts, once in each."""
        for text, place in self.texts():
            if found := pattern.search(text):
                yield found[0].strip(), place


def subjects(
    environment: Environment,
    models: Mapping[str, HardwareModel | None],
    *,
    lock: LockDocument | None = None,
    model_of: Mapping[str, str] | None = None,
    controllers: Controllers | None = None,
    served: tuple[Served, ...] = (),
    previous: Mapping[str, Mapping[str, str]] | None = None,
) -> list[Subject]:
    """An environment for each of its kinds: as asked for, and where there is a lock, with everything it resolved to.

    A lock of the file as it stands has every package that is asked for, at its full version, and those that these
    need: it is judged instead. One of another state of the file is not this environment's.
    """
    document = environment.document
    places = {layer: Place(document.file, document.line("layers", layer.value)) for layer in environment.layers}
    asked = {
        name: Item(name, version, layer, Place(document.file, document.line("layers", layer.value, "packages", name)))
        for name, (layer, version) in environment.packages().items()
    }
    values = {
        name: (text, Place(document.file, document.line("layers", "config", "values", name)))
        for name, text in environment.layers[Layer.CONFIG].values.items()
    }
    exceptions = tuple(
        (exception, Place(document.file, document.line("exceptions", at)))
        for at, exception in enumerate(environment.exceptions)
    )
    if lock is not None and lock.spec_sha256 != environment.spec_sha256:
        lock = None
    found = []
    for kind in environment.kinds:
        closure = lock.packages(kind) if lock is not None and kind in lock.kinds else {}
        packages = dict(asked)
        for name, package in closure.items():
            layer = Layer(package.layer)
            place = asked[name].place if name in asked else places[layer]
            packages[name] = Item(name, package.version, layer, place, name in asked)
        found.append(Subject(
            name=environment.name, kind=kind, place=Place(document.file, document.line("environment")),
            packages=packages, layers=environment.layers, layer_places=places,
            model=models.get((model_of or {}).get(kind, "")), image=_image(values), values=values,
            locked=bool(closure), facts=lock.facts(kind) if lock is not None else {}, controllers=controllers,
            served=served, previous=previous or {}, exceptions=exceptions,
        ))  # fmt: skip
    return found


def _image(values: Mapping[str, tuple[str, Place]]) -> ImageFacts:
    said = values.get(CUDA_VALUE)
    return ImageFacts(said[0], f"config.values.{CUDA_VALUE}") if said else ImageFacts()


def controllers_of(
    environment: Environment, environments: Mapping[str, Environment | None], locks: Mapping[str, LockDocument | None]
) -> Controllers | None:
    """The controllers' environment that an environment names, as it is asked for, or as it was locked."""
    name = environment.layers[Layer.SCHEDULER].controller
    named = environments.get(name) if name else None
    if name is None or named is None:
        return None
    packages = {package: version for package, (_, version) in named.packages().items()}
    lock = locks.get(name)
    if lock is not None and lock.spec_sha256 == named.spec_sha256:
        packages |= packages_of(lock)
    return Controllers(name, packages, f"environment {name}")


def packages_of(lock: LockDocument, kinds: Collection[str] | None = None) -> dict[str, str]:
    """Version of every package of a lock; where kinds differ, the earliest one."""
    versions: dict[str, str] = {}
    for kind in lock.kinds if kinds is None else (kind for kind in lock.kinds if kind in kinds):
        for name, package in lock.packages(kind).items():
            known = versions.setdefault(name, package.version)
            if compare(package.version, known) < 0:
                versions[name] = package.version
    return versions
