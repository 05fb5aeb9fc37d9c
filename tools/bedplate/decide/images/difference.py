"""Where two builds of one definition part: the first layer, the first file in it, and why that is likely.

Told for people, who then make the recipe reproducible or know why it is not. The reason is a guess by the file's name,
and says so; where there is none, only what differs is told.
"""

import re
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any


@dataclass(frozen=True)
class Entry:
    """One entry of a layer; mtime_s: seconds since 1970; target: of links."""

    kind: str
    mode: int
    owner: str
    mtime_s: int
    size: int
    sha256: str
    target: str


# What usually puts a time, a random name or an order of its own into a file, by the file's path.
_LIKELY = (
    (r"(.*/)?__pycache__/.*\.pyc", "Python puts the source's time into it: set PYTHONDONTWRITEBYTECODE=1"),
    (r"var/log/.*", "a log has times in it: remove it in the same RUN"),
    (r"var/cache/ldconfig/aux-cache", "ldconfig puts inodes and times into it: remove it in the same RUN"),
    (r"var/cache/.*|root/\.cache/.*|tmp/.*", "a cache: remove it in the same RUN"),
    (r"etc/(machine-id|hostname|hosts|resolv\.conf)", "the machine that builds leaves it: another builder or network"),
    (r"var/lib/(dpkg|apt)/.*", "other packages came, or in another order: the archive changed between the two builds"),
    (r".*\.dist-info/(RECORD|direct_url\.json|INSTALLER|uv_.*)", "an installer writes paths or times into it"),
    (r".*\.(gz|zip|jar|whl|egg)", "an archive has times in it"),
    (r".*\.(so|a|o|cubin|ptx|fatbin)(\.[0-9.]+)?", "built from source: a compiler put in a time, a path or an order"),
    (r".*\.(key|pem|crt)", "a key or certificate is made anew by each build"),
)  # fmt: skip
_FIELDS = {
    "kind": "what it is", "mode": "its mode", "owner": "its owner", "size": "its size", "sha256": "its bytes",
    "target": "where it points to", "mtime_s": "its time",
}  # fmt: skip


def first_other(first: Sequence[str], second: Sequence[str]) -> int | None:
    """The first place at which two lists of layers are not the same; None: nowhere."""
    for index in range(max(len(first), len(second))):
        if first[index : index + 1] != second[index : index + 1]:
            return index
    return None


def layer_difference(number: int, first: Mapping[str, Entry], second: Mapping[str, Entry]) -> str:
    """What differs first in two layers, by path; number: of the layer, the base's lowest is 1."""
    others = sorted(path for path in first.keys() | second.keys() if first.get(path) != second.get(path))
    if not others:
        return f"layer {number}: the same files in another order or packed otherwise: another builder or version"
    # What is in a directory changes the directory's time: the file says more.
    told = [path for path in others if not _is_directory(first.get(path), second.get(path))] or others
    path = told[0]
    more = f", and {len(others) - 1} more" if len(others) > 1 else ""
    why = next((reason for pattern, reason in _LIKELY if re.fullmatch(pattern, path)), "")
    return f"layer {number}: /{path}: {_what(first.get(path), second.get(path))}{more}" + (
        f" (likely: {why})" if why else ""
    )


def config_difference(first: Mapping[str, Any], second: Mapping[str, Any]) -> str:
    """What differs in two configurations whose layers are the same."""
    keys = sorted(key for key in first.keys() | second.keys() if first.get(key) != second.get(key))
    if not keys:
        return "layers and configuration are the same: only how they are packed differs"
    inner = [
        f"{key}.{name}"
        for key in keys
        if isinstance(first.get(key), dict) and isinstance(second.get(key), dict)
        for name in sorted(first[key].keys() | second[key].keys())
        if first[key].get(name) != second[key].get(name)
    ]
    return f"every layer is the same; in the configuration differ: {', '.join(inner or keys)}"


def _is_directory(*both: Entry | None) -> bool:
    return all(entry is None or entry.kind == "directory" for entry in both)


def _what(first: Entry | None, second: Entry | None) -> str:
    if first is None:
        return "only the second build has it"
    if second is None:
        return "only the first build has it"
    one, other = asdict(first), asdict(second)
    differ = [field for field in _FIELDS if one[field] != other[field]]
    if differ[0] in {"size", "sha256"}:
        return f"its bytes differ ({first.size} and {second.size})"
    return f"{_FIELDS[differ[0]]} differs ({_shown(differ[0], one)} and {_shown(differ[0], other)})"


def _shown(field: str, entry: Mapping[str, Any]) -> str:
    return f"{entry[field]:04o}" if field == "mode" else str(entry[field])
