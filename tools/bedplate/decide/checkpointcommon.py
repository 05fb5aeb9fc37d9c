"""The state of a checkpoint that is no tensor: iteration, parallel layout, and the file that Megatron 0.18 wants."""

import re
from collections.abc import Iterator, Mapping
from typing import Any

from bedplate.decide.checkpointpickle import Made, Pairs, Unreadable, read

# Megatron's names -> ours; what a checkpoint was saved with decides what it can be read into.
PARALLEL = {
    "tensor_model_parallel_size": "tensor",
    "pipeline_model_parallel_size": "pipeline",
    "virtual_pipeline_model_parallel_size": "virtual pipeline",
    "context_parallel_size": "context",
    "expert_model_parallel_size": "expert",
    "data_parallel_size": "data",
    "world_size": "ranks",
    "use_distributed_optimizer": "distributed optimizer",
    "ckpt_format": "format",
}
_LIST_OF_ONE = re.compile(rb"\x80[\x02\x03]\]q\x00", re.DOTALL)


class Common:
    """What common.pt or the key `common_state` says, as far as it is plain."""

    def __init__(self, data: bytes) -> None:
        """Read the data.pkl of it.

        Raises:
            Unreadable: it is no pickle of a dictionary.
        """
        value, self.names = read(data)
        if isinstance(value, list) and len(value) == 1:  # as 0.19 writes every object
            value = value[0]
        if not isinstance(value, Pairs):
            raise Unreadable("no dictionary")
        self._state = value
        self._arguments = dict(plain(value.get("args")))

    @property
    def iteration(self) -> int | None:
        found = self._state.get("iteration")
        return found if isinstance(found, int) and not isinstance(found, bool) and found >= 0 else None

    @property
    def content(self) -> Mapping[str, str] | None:
        """content_metadata, None where there is none."""
        found = self._state.get("content_metadata")
        return dict(plain(found)) if isinstance(found, Pairs) else None

    @property
    def parallel(self) -> dict[str, str]:
        return {ours: self._arguments[name] for name, ours in PARALLEL.items() if name in self._arguments}

    @property
    def versions(self) -> dict[str, str]:
        """Versions that the state itself records; Megatron records none of its own."""
        found = {**dict(plain(self._state)), **self._arguments}
        return {name: value for name, value in found.items() if "version" in name}


def common_file(data: bytes) -> bytes:
    """The data.pkl of the common.pt that Megatron 0.18 and earlier read, of that of the key `common_state`.

    0.19 writes the dictionary inside a list of one. Its brackets are taken off; what is between stays byte for byte.

    Raises:
        Unreadable: it is of another form.
    """
    value, _ = read(data)
    begin = _LIST_OF_ONE.match(data)
    if begin is None or not data.endswith(b"a.") or not isinstance(value, list) or len(value) != 1:
        raise Unreadable("common_state is no list of one dictionary as Megatron Core 0.19 writes it")
    found = data[:2] + data[begin.end() : -2] + b"."
    inner, _ = read(found)  # speaks of no value that went away
    if not isinstance(inner, Pairs):
        raise Unreadable("common_state holds no dictionary")
    return found


def plain(value: Any) -> Iterator[tuple[str, str]]:
    """The members of a dictionary or namespace that are plain, as text: `num_layers`, `8`."""
    pairs = value.state if isinstance(value, Made) else value
    if isinstance(pairs, Pairs):
        for key, member in pairs.items:
            if isinstance(key, str) and isinstance(member, str | int | float | bool):
                yield key, str(member)[:200]
