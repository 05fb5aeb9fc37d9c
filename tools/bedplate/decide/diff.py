"""What differs between two locks, layer by layer.

Layers stand in their order, firmware to launch; in each the most consequential difference stands first: what boots
the node, what the layer is, what somebody asked for (a major version before a minor one, a way back before a way
forward), then what only came with it.

Compared is what the nodes get. Not compared is how it was found: the environment's name, the hashes of its
file, of the archive's InRelease and of the build record; two locks may differ in these and be the same bytes.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from enum import IntEnum

from bedplate.decide.lockdoc import LockDocument, Package
from bedplate.decide.packages import kernel_release, nvidia
from bedplate.decide.reboots import reboot_reasons
from bedplate.model import versions
from bedplate.model.layers import Layer

PARTS = 3  # of a version that are told apart: major, minor, patch


@dataclass(frozen=True)
class Difference:
    """One item of one layer; None: it is not there."""

    layer: Layer
    item: str
    old: str | None
    new: str | None


@dataclass(frozen=True)
class LayerComparison:
    """A layer of two locks: why it is not managed, how many items are the same, and which differ."""

    layer: Layer
    unmanaged: tuple[str | None, str | None]
    same: int
    differences: tuple[Difference, ...]


class Weight(IntEnum):
    """What changes with an item, the gravest first."""

    BOOT = 0  # what a node has to boot for
    LAYER = 1  # what the layer is: its models, its release, the versions in its image
    ASKED = 2  # what somebody asked for
    BYTES = 3  # which bytes that is
    SOURCE = 4  # where it comes from
    NEEDED = 5  # what came with something else


@dataclass(frozen=True)
class _Item:
    """What a person wants to see of an item, and all of it."""

    shown: str
    whole: str
    weight: Weight = field(default=Weight.LAYER, compare=False)


def differences(a: LockDocument, b: LockDocument) -> list[Difference]:
    """Every difference, in the order of layers, then by consequence; empty exactly if the nodes get the same."""
    return [difference for layer in comparison(a, b) for difference in layer.differences]


def comparison(a: LockDocument, b: LockDocument) -> list[LayerComparison]:
    """All twelve layers, in their order."""
    one_kind = len(a.kinds.keys() | b.kinds.keys()) == 1
    old, new = _items(a, one_kind=one_kind), _items(b, one_kind=one_kind)
    return [
        LayerComparison(
            layer,
            (a.unmanaged(layer), b.unmanaged(layer)),
            sum(new[layer].get(name) == item for name, item in old[layer].items()),
            tuple(_differences(layer, old[layer], new[layer])),
        )
        for layer in Layer
    ]


def boots(a: LockDocument, b: LockDocument) -> dict[str, list[str]]:
    """Kind of node -> why its nodes boot on their way from one lock to the other; only kinds that do."""
    found = {kind: reboot_reasons(a, b, kind) for kind in sorted(a.kinds.keys() & b.kinds.keys())}
    return {kind: reasons for kind, reasons in found.items() if reasons}


def _differences(layer: Layer, old: Mapping[str, _Item], new: Mapping[str, _Item]) -> Iterator[Difference]:
    for name in sorted(old.keys() | new.keys(), key=lambda name: _order(name, old.get(name), new.get(name))):
        before, after = old.get(name), new.get(name)
        if before == after:
            continue
        if before and after and before.shown == after.shown:
            yield Difference(layer, name, before.whole, after.whole)
        else:
            yield Difference(layer, name, before.shown if before else None, after.shown if after else None)


def _order(name: str, old: _Item | None, new: _Item | None) -> tuple[int, int, bool, str]:
    weight = min(item.weight for item in (old, new) if item is not None)
    if old is None or new is None or not (name.startswith(("package ", "holds "))):
        return weight, 0, False, name
    try:
        return weight, _step(old.shown, new.shown), versions.compare(old.shown, new.shown) <= 0, name
    except ValueError:  # no version of Debian's form: Python has others
        return weight, 0, False, name


def _step(old: str, new: str) -> int:
    """Which part of two versions is the first to differ: 0 the major one, PARTS one behind the patch."""
    for count in range(1, PARTS + 1):
        before, after = versions.numbers(old, count), versions.numbers(new, count)
        if before is None or after is None or before != after:
            return count - 1
    return PARTS


def _items(lock: LockDocument, *, one_kind: bool) -> dict[Layer, dict[str, _Item]]:
    """Every item of a lock that reaches a node, by layer and name."""
    items: dict[Layer, dict[str, _Item]] = {layer: {} for layer in Layer}
    for layer, name, value, weight in [*_platform(lock), *_image(lock), *_config(lock)]:
        items[layer][name] = _Item(value, value, weight)
    for kind in lock.kinds:
        for p in lock.packages(kind).values():
            why = "asked for" if p.asked else "needed by others"
            whole = f"{p.version} {p.architecture} {p.sha256} {p.size} bytes {p.filename} {why}"
            name = f"package {p.name}" + ("" if one_kind else f" on {kind}")
            items[Layer(p.layer)][name] = _Item(p.version, whole, _weight(p))
    return items


def _weight(package: Package) -> Weight:
    """Of a package: the kernel and the driver's are what nodes boot for."""
    if package.layer == Layer.KERNEL and kernel_release(package.name):
        return Weight.BOOT
    if package.layer == Layer.DRIVER and nvidia(package.name):
        return Weight.BOOT if package.asked else Weight.ASKED
    return Weight.ASKED if package.asked else Weight.NEEDED


def _platform(lock: LockDocument) -> Iterator[tuple[Layer, str, str, Weight]]:
    """What the layers say themselves, the kinds of node, and the archive: their package source."""
    for layer, entry in lock.layers.items():
        for key, value in entry.items():
            yield Layer(layer), key, _said(value), Weight.BOOT if key == "command_line" else Weight.LAYER
    for kind, about in lock.kinds.items():
        for key, value in about.items():
            yield Layer.HARDWARE, f"kind {kind} {key}", value, Weight.LAYER
    for exception in lock.exceptions:
        why = f"{exception['reason']} ({exception['approved_by']})"
        yield Layer.HARDWARE, f"rule {exception['rule']} lifted", why, Weight.ASKED
    for kind in lock.kinds:
        for key, value in lock.facts(kind).items():
            layer = Layer.SCHEDULER if key.startswith("spank") else Layer.OS
            yield layer, f"kind {kind} {key}", value, Weight.NEEDED
    for key in ("url", "suite", "components", "key_sha256"):
        yield Layer.OS, f"archive {key}", _said(lock.document["archive"][key]), Weight.SOURCE


def _image(lock: LockDocument) -> Iterator[tuple[Layer, str, str, Weight]]:
    if lock.image is None:
        return
    entries = lock.image.as_dict()
    # the digest in the reference stands beside it; the build record holds times
    entries["repository"] = str(entries.pop("reference")).partition("@")[0]
    del entries["build_record_sha256"]
    for name, version in entries.pop("versions", {}).items():
        yield Layer.IMAGE, f"holds {name}", version, Weight.LAYER
    for key, value in entries.items():
        if value is not None:
            yield Layer.IMAGE, key, str(value), Weight.BYTES


def _config(lock: LockDocument) -> Iterator[tuple[Layer, str, str, Weight]]:
    for path, digest in lock.templates.items():
        yield Layer.CONFIG, path, digest, Weight.BYTES
    for key, value in lock.values.items():
        yield Layer.CONFIG, f"value {key}", value, Weight.ASKED


def _said(value: str | list[str]) -> str:
    return value if isinstance(value, str) else " ".join(value)
