"""The tensors of one file that torch.save wrote: keys, shapes, and which members of the archive hold their numbers."""

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from bedplate.decide.checkpointpickle import Made, Name, Pairs, Persistent
from bedplate.model.checkpoint import Entry

_PARAMETER = "torch._utils._rebuild_parameter"
DEEPEST = 32  # levels of a state dictionary; Megatron's have about 6
LONGEST_KEY = 500
# bytes of a number, by torch's old names of storages and its dtypes
_WIDTHS = {
    "FloatStorage": 4, "DoubleStorage": 8, "HalfStorage": 2, "BFloat16Storage": 2, "LongStorage": 8, "IntStorage": 4,
    "ShortStorage": 2, "CharStorage": 1, "ByteStorage": 1, "BoolStorage": 1, "UntypedStorage": 1,
}  # fmt: skip
_DTYPES = {
    "FloatStorage": "float32", "DoubleStorage": "float64", "HalfStorage": "float16", "BFloat16Storage": "bfloat16",
    "LongStorage": "int64", "IntStorage": "int32", "ShortStorage": "int16", "CharStorage": "int8",
    "ByteStorage": "uint8", "BoolStorage": "bool",
}  # fmt: skip


@dataclass(frozen=True)
class Held:
    entry: Entry
    member: str
    """The number of the storage: its bytes are the member data/NUMBER."""


def tensors(value: Any) -> Iterator[Held]:
    """Every tensor below a value, by its path: `model.decoder.layers.0.weight`."""
    seen: set[int] = set()
    todo: list[tuple[str, int, Any]] = [("", 0, value)]
    while todo:
        path, depth, item = todo.pop()
        if depth > DEEPEST or len(path) > LONGEST_KEY:
            continue
        if isinstance(item, Made) and item.named(_PARAMETER) and isinstance(item.arguments, tuple) and item.arguments:
            todo.append((path, depth + 1, item.arguments[0]))  # a parameter is its tensor
            continue
        held = _held(path, item)
        if held is not None:
            yield held
        elif isinstance(item, Pairs | Made | list | tuple) and id(item) not in seen:
            seen.add(id(item))  # a value that holds itself has no end
            todo += [(f"{path}.{name}" if path else name, depth + 1, part) for name, part in _below(item)]


def _below(item: Any) -> Iterator[tuple[str, Any]]:
    if isinstance(item, Pairs):
        yield from ((str(key), part) for key, part in item.items if isinstance(key, str | int))
    elif isinstance(item, Made):
        yield from ((str(pair[0]), pair[1]) for pair in item.added if isinstance(pair, tuple) and _keyed(pair))
        if isinstance(item.state, Pairs):
            yield from _below(item.state)
    else:
        yield from ((str(index), part) for index, part in enumerate(item))


def _keyed(pair: tuple[Any, ...]) -> bool:
    return len(pair) == 2 and isinstance(pair[0], str | int)  # noqa: PLR2004


def _held(path: str, item: Any) -> Held | None:
    """The tensor, where an item is the rebuilding of one."""
    if not isinstance(item, Made) or not item.named("torch._utils._rebuild_tensor_v2"):
        return None
    match item.arguments:
        case (
            Persistent(reference=("storage", Name() as kind, str() as member, _, int() as numbers)),
            _,
            tuple() as shape,
            *_,
        ):
            if numbers < 0 or not all(isinstance(n, int) and 0 <= n < 2**63 for n in shape):
                return None
            width = _WIDTHS.get(kind.name)
            size = None if width is None else width * numbers
            return Held(Entry(path, "tensor", shape, _DTYPES.get(kind.name), size), member)
    return None


def disagreements(held: Held, members: Mapping[str, int]) -> Iterator[str]:
    """What is wrong with a tensor; members: number of a storage -> bytes in the archive."""
    entry = held.entry
    if held.member not in members:
        yield f"{entry.key!r}: its numbers, data/{held.member[:50]}, are not in the file"
    elif entry.size_bytes is not None and members[held.member] != entry.size_bytes:
        yield f"{entry.key!r}: {members[held.member]} bytes of numbers, where {entry.size_bytes} are said"
    width = _WIDTHS.get(next((kind for kind, name in _DTYPES.items() if name == entry.dtype), ""))
    if (
        width
        and entry.size_bytes is not None
        and math.prod(entry.shape or ()) * width > entry.size_bytes
        and 0 not in (entry.shape or ())
    ):
        # an expanded view may be larger than what holds it; a checkpoint of Megatron has none
        yield f"{entry.key!r}: the shape {list(entry.shape or ())} needs more than its {entry.size_bytes} bytes"
