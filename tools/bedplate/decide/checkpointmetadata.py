"""What `.metadata` of a distributed checkpoint says: keys, shapes, and which bytes of which file hold them."""

import math
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from bedplate.decide.checkpointpickle import Made, Name, Pairs, Unreadable, read, write
from bedplate.model.checkpoint import Entry

_METADATA = "torch.distributed.checkpoint.metadata"
_INFO = "torch.distributed.checkpoint.filesystem._StorageInfo"
COMMON_STATE = "common_state/shard_0_1"
"""The key under which Megatron Core 0.19 and later keep what is no tensor."""


@dataclass(frozen=True)
class Stored:
    """Where a shard lies: bytes [offset, offset + length) of a file, as .metadata has it. The path is not checked."""

    key: str
    path: str
    offset: int
    length: int


@dataclass(frozen=True)
class DcpMetadata:
    entries: tuple[Entry, ...]
    stored: tuple[Stored, ...]
    names: frozenset[str]
    wrong: tuple[str, ...]
    """What it says that cannot be: a key without bytes, bytes of a key that it has not."""


def read_metadata(data: bytes) -> DcpMetadata:
    """Read `.metadata` without unpickling it.

    Raises:
        Unreadable: it is no such file, or is cut off.
    """
    root, names = read(data)
    keys, storage = _parts(root)
    stored, wrong = [], []
    for index, info in storage.items:
        found = _stored(index, info)
        if found is None:
            wrong.append("an entry of storage_data is of another form")
        else:
            stored.append(found)
    sizes: dict[str, list[int]] = {}
    for place in stored:
        sizes.setdefault(place.key, []).append(place.length)
    entries: dict[str, Entry] = {}
    for key, value in keys.items:
        entry = _entry(key, value, sizes)
        if entry is None:
            wrong.append(f"{_shown(key)}: neither a tensor nor an object")
        elif entry.key in entries:
            wrong.append(f"{_shown(key)}: twice")
        else:
            entries[entry.key] = entry
            wrong += _disagreements(entry, value, len(sizes.get(entry.key, ())))
    wrong += [f"{_shown(key)}: has bytes and is no key" for key in sizes if key not in entries]
    if not entries and not wrong:
        wrong.append("has no keys: nothing was saved")
    return DcpMetadata(tuple(entries.values()), tuple(stored), frozenset(names), tuple(dict.fromkeys(wrong)))


def without_common_state(data: bytes) -> bytes:
    """`.metadata` as a writer before Megatron Core 0.19 would have left it: without the key `common_state`.

    Raises:
        Unreadable: it is not of the known form.
    """
    root, _ = read(data)
    keys, storage = _parts(root)
    keys.items[:] = [(key, value) for key, value in keys.items if key != COMMON_STATE]
    storage.items[:] = [(index, info) for index, info in storage.items if _key(index) != COMMON_STATE]
    plans = root.get("all_local_plans") if isinstance(root, Made) else None  # Megatron keeps the plan of each rank
    for plan in plans if isinstance(plans, list) else ():
        items = plan.get("items") if isinstance(plan, Made) else None
        if isinstance(items, list):
            items[:] = [item for item in items if not _is_common(item)]
    return write(root, 8 * len(data) + 4096)  # objects that are shared are written each time


def _is_common(item: Any) -> bool:
    return isinstance(item, Made) and _key(item.get("index")) == COMMON_STATE


def _key(index: Any) -> Any:
    found = index.get("fqn") if isinstance(index, Made) else None
    return found if isinstance(found, str) else None


def _parts(root: Any) -> tuple[Pairs, Pairs]:
    """Keys and storage of a Metadata."""
    if not isinstance(root, Made) or not root.named(f"{_METADATA}.Metadata") or not isinstance(root.state, Pairs):
        raise Unreadable("no Metadata of torch.distributed.checkpoint")
    keys, storage = root.get("state_dict_metadata"), root.get("storage_data")
    if not isinstance(keys, Pairs) or not isinstance(storage, Pairs):
        raise Unreadable("a Metadata without state_dict_metadata or storage_data")
    return keys, storage


def _stored(index: Any, info: Any) -> Stored | None:
    if not isinstance(index, Made) or not index.named(f"{_METADATA}.MetadataIndex"):
        return None
    if not isinstance(info, Made) or not info.named(_INFO):
        return None
    key, path, offset, length = index.get("fqn"), info.get("relative_path"), info.get("offset"), info.get("length")
    if not (isinstance(key, str) and isinstance(path, str) and _count(offset) and _count(length)):
        return None
    return Stored(key, path, offset, length)


def _entry(key: Any, value: Any, sizes: dict[str, list[int]]) -> Entry | None:
    if not isinstance(key, str) or not isinstance(value, Made):
        return None
    lengths = sizes.get(key, [])
    size = sum(lengths) if lengths else None
    if value.named(f"{_METADATA}.BytesStorageMetadata"):
        return Entry(key, "object", None, None, size, len(lengths))
    if not value.named(f"{_METADATA}.TensorStorageMetadata"):
        return None
    shape, chunks = _size(value.get("size")), value.get("chunks")
    if shape is None or not isinstance(chunks, list):
        return None
    return Entry(key, "tensor", shape, _dtype(value.get("properties")), size, len(chunks))


def _disagreements(entry: Entry, value: Made, stored: int) -> Iterator[str]:
    key = _shown(entry.key)
    if not stored:
        yield f"{key}: no file is said to hold it"
    if entry.kind != "tensor":
        return
    assert entry.shape is not None  # noqa: S101
    if entry.dtype is None:
        yield f"{key}: no dtype"
    if stored and stored != entry.shards:
        yield f"{key}: {entry.shards} shards, of which files hold {stored}"
    numbers = 0
    for chunk in value.get("chunks"):
        offsets, sizes = (
            (_size(chunk.get("offsets")), _size(chunk.get("sizes"))) if isinstance(chunk, Made) else (None, None)
        )
        if offsets is None or sizes is None or not len(offsets) == len(sizes) == len(entry.shape):
            yield f"{key}: a shard without a place"
            return
        if any(o + s > whole for o, s, whole in zip(offsets, sizes, entry.shape, strict=True)):
            yield f"{key}: a shard lies outside its shape {list(entry.shape)}"
            return
        numbers += math.prod(sizes)
    if numbers < math.prod(entry.shape):
        yield f"{key}: its shards hold {numbers} numbers of {math.prod(entry.shape)}"


def _dtype(properties: Any) -> str | None:
    first = properties.state[0] if isinstance(properties, Made) and _filled(properties.state) else None
    return first.name if isinstance(first, Name) and first.module == "torch" else None


def _filled(value: Any) -> bool:
    return isinstance(value, tuple) and bool(value)


def _size(value: Any) -> tuple[int, ...] | None:
    """The numbers of a torch.Size."""
    if not isinstance(value, Made) or not value.named("torch.Size") or not _filled(value.arguments):
        return None
    numbers = value.arguments[0]
    if not isinstance(numbers, tuple | list) or len(numbers) > 64 or not all(map(_count, numbers)):  # noqa: PLR2004  torch's own limit of dimensions
        return None
    return tuple(numbers)


def _count(value: Any) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and 0 <= value < 2**63


def _shown(key: Any) -> str:
    return repr(key)[:200] if isinstance(key, str) else f"a key that is a {type(key).__name__}"
