"""The header of a safetensors file: keys, shapes, and how long the file must be."""

import json
import math
from typing import Any

from bedplate.decide.checkpointpickle import Unreadable
from bedplate.model.checkpoint import Entry

LARGEST_HEADER_BYTES = 100_000_000  # the format's own limit
_BYTES = {
    "BOOL": 1, "U8": 1, "I8": 1, "F8_E4M3": 1, "F8_E5M2": 1, "F8_E8M0": 1, "I16": 2, "U16": 2, "F16": 2, "BF16": 2,
    "I32": 4, "U32": 4, "F32": 4, "F64": 8, "I64": 8, "U64": 8, "C64": 8,
}  # fmt: skip


def read_header(data: bytes) -> tuple[list[Entry], int, list[str]]:
    """Keys, the number of bytes behind the header, and what the header says that cannot be.

    Raises:
        Unreadable: it is no header.
    """
    try:
        document: Any = json.loads(data.decode())
    except (ValueError, RecursionError) as fault:
        raise Unreadable(f"no header in JSON: {str(fault)[:200]}") from None
    if not isinstance(document, dict):
        raise Unreadable("a header that is no object")
    entries: list[Entry] = []
    wrong: list[str] = []
    end = 0
    for key, said in document.items():
        if key == "__metadata__":
            continue
        entry = _entry(key, said)
        if entry is None:
            wrong.append(f"{key[:200]!r}: no dtype, shape and data_offsets of a tensor")
            continue
        entries.append(entry)
        end = max(end, said["data_offsets"][1])
        width = _BYTES.get(entry.dtype or "")
        if width and entry.size_bytes != width * math.prod(entry.shape or ()):
            wrong.append(
                f"{key[:200]!r}: {entry.size_bytes} bytes for the shape {list(entry.shape or ())} of {entry.dtype}"
            )
    return entries, end, wrong


def _entry(key: str, said: Any) -> Entry | None:
    if not isinstance(said, dict):
        return None
    dtype, shape, offsets = said.get("dtype"), said.get("shape"), said.get("data_offsets")
    match offsets:
        case [int() as begin, int() as end] if 0 <= begin <= end < 2**63 and isinstance(dtype, str) and _counts(shape):
            return Entry(key, "tensor", tuple(shape or ()), dtype, end - begin)
    return None


def _counts(value: Any) -> bool:
    return isinstance(value, list) and all(type(n) is int and 0 <= n < 2**63 for n in value)
