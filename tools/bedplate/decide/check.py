"""What the files of a site must agree on, beyond what each says by itself.

A rule takes the contents of a site and yields faults; to add one, write it and add it to RULES. A rule says nothing
about a file that could not be read (its entry is None): that file's own faults are reported already.
"""

from collections.abc import Callable, Collection, Iterator, Mapping
from dataclasses import dataclass, field
from itertools import groupby

from bedplate.decide.lockdoc import LockDocument
from bedplate.decide.rule import Finding, judged
from bedplate.decide.rules import all_rules
from bedplate.decide.subject import controllers_of, subjects
from bedplate.model.environment import Environment
from bedplate.model.faults import Fault
from bedplate.model.fleet import Fleet
from bedplate.model.hardware import HardwareModel
from bedplate.model.image import ImageDefinition
from bedplate.model.layers import Layer
from bedplate.model.schema import nearest


@dataclass(frozen=True)
class Contents:
    """The files of a site, read; None stands for a file that is there and could not be."""

    fleet: Fleet | None
    environments: Mapping[str, Environment | None]
    models: Mapping[str, HardwareModel | None]
    images: Mapping[str, ImageDefinition | None]
    """By directory: images/train."""
    locks: Mapping[str, LockDocument | None]
    digests: Mapping[str, str] = field(default_factory=dict)
    """sha256 of archive keys and Dockerfiles that are there, by their path in the site."""
    root: str = ""
    """How messages name the directory of the site."""

    def shown(self, path: str) -> str:
        return f"{self.root}/{path}" if self.root else path

    def readable_environments(self) -> list[Environment]:
        return [environment for environment in self.environments.values() if environment is not None]


def check_site(contents: Contents, *, online: bool = False) -> list[Fault]:
    """Every fault between the files of a site; `online` adds what only matters to who will ask the archive."""
    faults = [fault for rule in RULES for fault in rule(contents)]
    return faults + list(_archive_keys(contents, online=online))


def rule_findings(contents: Contents) -> list[Finding]:
    """What the cross-layer rules find in every environment that could be read, by what it asks for and its lock."""
    return [
        finding
        for environment in contents.readable_environments()
        for finding in judged(
            all_rules(),
            subjects(
                environment,
                contents.models,
                lock=contents.locks.get(environment.name),
                model_of={name: kind.model for name, kind in contents.fleet.kinds.items()} if contents.fleet else {},
                controllers=controllers_of(environment, contents.environments, contents.locks),
            ),
        )
    ]


def askable(contents: Contents, faulty: Collection[str]) -> list[str]:
    """The environments worth a question to archive and registry: those that nothing here is wrong with."""
    return [
        environment.name
        for environment in contents.readable_environments()
        if contents.fleet is not None
        and environment.document.file not in faulty
        and contents.shown(f"environments/{environment.name}.lock.json") not in faulty
    ]


def _kind_models(contents: Contents) -> Iterator[Fault]:
    """Each kind of node has a hardware model that the site describes."""
    fleet = contents.fleet
    for name, kind in fleet.kinds.items() if fleet else ():
        if fleet and kind.model not in contents.models:
            found = f'no models/{kind.model}.yml for the model "{kind.model}"'
            yield fleet.document.fault(("kinds", name, "model"), found, nearest(kind.model, contents.models))


def _nic_counts(contents: Contents) -> Iterator[Fault]:
    """Each machine has as many network adapters as its model, and as many disks where both are said."""
    for node in contents.fleet.nodes.values() if contents.fleet else ():
        assert contents.fleet  # noqa: S101
        model = contents.models.get(contents.fleet.kinds[node.kind].model)
        if model is not None and len(node.nic_macs) != model.nics:
            found = f"node {node.name} has {len(node.nic_macs)} nic_macs, its model {model.model} has {model.nics}"
            yield Fault(contents.fleet.csv_file, node.line, found, "list all of them, or correct the model")
        for what, serials, wanted in (
            ("boot", node.boot_disk_serials, model and model.boot_disks),
            ("data", node.data_disk_serials, model and model.data_disks),
        ):
            if model is not None and serials and wanted not in (None, len(serials)):
                has = f"node {node.name} has {len(serials)} {what}_disk_serials"
                found = f"{has}, its model {model.model} {wanted} {what} disks"
                yield Fault(contents.fleet.csv_file, node.line, found, "correct one of the two")


def _gpu_types(contents: Contents) -> Iterator[Fault]:
    """The scheduler's name of GPUs is a part of what they are called: rules and Slurm tell machines apart by it."""
    for name, model in contents.models.items():
        if model is None or model.gpu_type is None or model.gpu_product is None:
            continue
        # As Slurm compares it with what NVML says: "NVIDIA H100 80GB HBM3" is nvidia_h100_80gb_hbm3.
        if model.gpu_type.lower() not in model.gpu_product.lower().replace(" ", "_"):
            found = f'gpu_type: "{model.gpu_type}" is no part of "{model.gpu_product}"'
            yield Fault(contents.shown(f"models/{name}.yml"), None, found, "correct one of the two")


def _environment_kinds(contents: Contents) -> Iterator[Fault]:
    """An environment is for kinds that the fleet has, and for the hardware of each of them."""
    fleet = contents.fleet
    for environment in contents.readable_environments():
        models = environment.layers[Layer.HARDWARE].models
        place = ("layers", "hardware", "models")
        for model in models:
            if model not in contents.models:
                found = f'no models/{model}.yml for the model "{model}"'
                yield environment.document.fault(place, found, nearest(model, contents.models))
        for kind in environment.kinds if fleet else ():
            assert fleet  # noqa: S101
            if kind not in fleet.kinds:
                found = f'unknown kind "{kind}"'
                yield environment.document.fault(("kinds",), found, nearest(kind, fleet.kinds))
            elif environment.layers[Layer.HARDWARE].managed and fleet.kinds[kind].model not in models:
                found = f'nodes of kind {kind} are of model "{fleet.kinds[kind].model}", which is not listed'
                yield environment.document.fault(place, found, "add it, or take the kind out")


def _controllers(contents: Contents) -> Iterator[Fault]:
    """The environment of the controllers that an environment names is one of this site."""
    for environment in contents.readable_environments():
        name = environment.layers[Layer.SCHEDULER].controller
        if name is not None and name not in contents.environments:
            path = ("layers", "scheduler", "controller")
            known = [other for other in contents.environments if other != environment.name]
            yield environment.document.fault(path, f'no environments/{name}.yml for "{name}"', nearest(name, known))


def _image_definitions(contents: Contents) -> Iterator[Fault]:
    """The image that an environment asks for is defined; two definitions never share a name."""
    for environment in contents.readable_environments():
        definition = environment.layers[Layer.IMAGE].definition
        if definition is not None and definition not in contents.images:
            found = f"no {definition}/image.yml"
            path = ("layers", "image", "definition")
            yield environment.document.fault(path, found, nearest(definition, contents.images))
    known = [(image.name, definition, image) for definition, image in contents.images.items() if image]
    for name, group in groupby(sorted(known, key=lambda entry: entry[:2]), key=lambda entry: entry[0]):
        first, *others = [definition for _, definition, _ in group]
        for other in others:
            found = f'name: "{name}" is also the name in {first}/image.yml'
            yield Fault(contents.shown(f"{other}/image.yml"), None, found, "name each definition by itself")
    for _, definition, image in known:
        if f"{definition}/{image.dockerfile}" not in contents.digests:
            found = f"dockerfile: no {definition}/{image.dockerfile}"
            yield Fault(contents.shown(f"{definition}/image.yml"), None, found, "write it, or correct dockerfile")


def _locks(contents: Contents) -> Iterator[Fault]:
    """A lock is that of its environment file as it stands, and of the fleet's kinds."""
    for name, lock in contents.locks.items():
        file = contents.shown(f"environments/{name}.lock.json")
        if name not in contents.environments:
            yield Fault(
                file, None, f"a lock without environments/{name}.yml", "bring that file back from version control"
            )
        environment = contents.environments.get(name)
        if lock is None or environment is None:
            continue
        if lock.spec_sha256 != environment.spec_sha256:
            found = f"environment {name} changed since it was locked"
            remedy = "undo the change, or make it an environment with a name of its own: a lock is never edited"
            yield Fault(environment.document.file, environment.document.line("environment"), found, remedy)
        for kind, locked in lock.kinds.items() if contents.fleet else ():
            assert contents.fleet  # noqa: S101
            now = contents.fleet.kinds.get(kind)
            if now and (now.model, now.architecture) != (locked["model"], locked["architecture"]):
                found = (
                    f"kinds.{kind}: locked for {locked['model']} ({locked['architecture']}),"
                    f" in the fleet it is {now.model} ({now.architecture})"
                )
                yield Fault(file, None, found, "an environment for other hardware needs a name of its own")


def _archive_keys(contents: Contents, *, online: bool) -> Iterator[Fault]:
    """Who asks the archive, or installs from it, needs its key; a lock knows which key it was.

    An environment that nobody has locked yet may come before its key.
    """
    for environment in contents.readable_environments():
        key, lock = environment.archive.key, contents.locks.get(environment.name)
        locked = environment.name in contents.locks
        if key not in contents.digests:
            if online or locked:
                found = f"no {key}, the key that signs {environment.archive.url}"
                yield environment.document.fault(("archive", "key"), found, "put the archive's public key there")
        elif lock is not None and lock.document["archive"]["key_sha256"] != contents.digests[key]:
            found = f"{key} is not the key that the lock was made with"
            remedy = "put the old key back, or lock a new environment"
            yield environment.document.fault(("archive", "key"), found, remedy)


RULES: tuple[Callable[[Contents], Iterator[Fault]], ...] = (
    _kind_models,
    _nic_counts,
    _gpu_types,
    _environment_kinds,
    _controllers,
    _image_definitions,
    _locks,
)


def summary(contents: Contents) -> Iterator[tuple[str, str]]:
    """For each file that could be read: its name, and in one line what it says."""
    fleet = contents.fleet
    if fleet:
        groups = ", ".join(f"{name} {len(nodes)}" for name, nodes in fleet.groups.items())
        example = ", an example" if fleet.example else ""
        yield fleet.document.file, f"site {fleet.site}{example}: {len(fleet.racks)} racks; {groups}"
        yield fleet.csv_file, f"{len(fleet.nodes)} nodes"
    for name, model in contents.models.items():
        if model:
            stand_in = "stand-in: " if model.stand_in else ""
            what = f"{model.gpus} {model.gpu_product}" if model.gpus else "no GPU"
            yield contents.shown(f"models/{name}.yml"), f"{stand_in}{model.vendor}, {what}, {model.nics} NICs"
    for definition, image in contents.images.items():
        if image:
            yield contents.shown(f"{definition}/image.yml"), f"{image.name}, from {image.base_reference}"
    for environment in contents.readable_environments():
        yield environment.document.file, _environment_summary(environment, contents)
    for name, lock in contents.locks.items():
        if lock:
            packages = ", ".join(f"{kind} {len(lock.packages(kind))} packages" for kind in lock.kinds)
            yield contents.shown(f"environments/{name}.lock.json"), f"{lock.identity}; {packages}"


def _environment_summary(environment: Environment, contents: Contents) -> str:
    managed = sum(spec.managed for spec in environment.layers.values())
    nodes = f" ({len(contents.fleet.nodes_of(environment.kinds))} nodes)" if contents.fleet else ""
    return (
        f"for {', '.join(environment.kinds)}{nodes}; {managed} layers managed, {len(Layer) - managed} not;"
        f" {len(environment.packages())} packages asked for;"
        f" {'locked' if environment.name in contents.locks else 'unlocked'}"
    )
