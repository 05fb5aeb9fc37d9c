"""What differs between two locks, layer by layer.

Compared is what the nodes get. Not compared is how it was found: the environment's name, the hashes of its
file, of the archive's InRelease and of the build record; two locks may differ in these and be the same bytes.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from bedplate.decide.lockdoc import LockDocument
from bedplate.model.layers import Layer


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


@dataclass(frozen=True)
class _Item:
    """What a person wants to see of an item, and all of it."""

    shown: str
    whole: str


def differences(a: LockDocument, b: LockDocument) -> list[Difference]:
    """Every difference, in the order of layers, then by item; empty exactly if the nodes get the same."""
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


def _differences(layer: Layer, old: Mapping[str, _Item], new: Mapping[str, _Item]) -> Iterator[Difference]:
    for name in sorted(old.keys() | new.keys()):
        before, after = old.get(name), new.get(name)
        if before == after:
            continue
        if before and after and before.shown == after.shown:
            yield Difference(layer, name, before.whole, after.whole)
        else:
            yield Difference(layer, name, before.shown if before else None, after.shown if after else None)


def _items(lock: LockDocument, *, one_kind: bool) -> dict[Layer, dict[str, _Item]]:
    """Every item of a lock that reaches a node, by layer and name."""
    items: dict[Layer, dict[str, _Item]] = {layer: {} for layer in Layer}
    for layer, name, value in [*_platform(lock), *_image(lock), *_config(lock)]:
        items[layer][name] = _Item(value, value)
    for kind in lock.kinds:
        for p in lock.packages(kind).values():
            why = "asked for" if p.asked else "needed by others"
            whole = f"{p.version} {p.architecture} {p.sha256} {p.size} bytes {p.filename} {why}"
            name = f"package {p.name}" + ("" if one_kind else f" on {kind}")
            items[Layer(p.layer)][name] = _Item(p.version, whole)
    return items


def _platform(lock: LockDocument) -> Iterator[tuple[Layer, str, str]]:
    """What the layers say themselves, the kinds of node, and the archive: their package source."""
    for layer, entry in lock.layers.items():
        for key, value in entry.items():
            yield Layer(layer), key, _said(value)
    for kind, about in lock.kinds.items():
        for key, value in about.items():
            yield Layer.HARDWARE, f"kind {kind} {key}", value
    for exception in lock.exceptions:
        why = f"{exception['reason']} ({exception['approved_by']})"
        yield Layer.HARDWARE, f"rule {exception['rule']} lifted", why
    for kind in lock.kinds:
        for key, value in lock.facts(kind).items():
            yield Layer.SCHEDULER if key.startswith("spank") else Layer.OS, f"kind {kind} {key}", value
    for key in ("url", "suite", "components", "key_sha256"):
        yield Layer.OS, f"archive {key}", _said(lock.document["archive"][key])


def _image(lock: LockDocument) -> Iterator[tuple[Layer, str, str]]:
    if lock.image is None:
        return
    entries = lock.image.as_dict()
    # the digest in the reference stands beside it; the build record holds times
    entries["repository"] = str(entries.pop("reference")).partition("@")[0]
    del entries["build_record_sha256"]
    for name, version in entries.pop("versions", {}).items():
        yield Layer.IMAGE, f"holds {name}", version
    for key, value in entries.items():
        if value is not None:
            yield Layer.IMAGE, key, str(value)


def _config(lock: LockDocument) -> Iterator[tuple[Layer, str, str]]:
    for path, digest in lock.templates.items():
        yield Layer.CONFIG, path, digest
    for key, value in lock.values.items():
        yield Layer.CONFIG, f"value {key}", value


def _said(value: str | list[str]) -> str:
    return value if isinstance(value, str) else " ".join(value)
