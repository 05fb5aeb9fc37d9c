"""Really load a checkpoint with the Megatron and torch that run this file: it is sent to the Python of an image.

    python - PATH BYTES < checkpointloader.py      # the last line: bedplate-checkpoint: {"megatron_core": …}

Nothing of bedplate is imported here: the image does not have it. Tensors are loaded in batches, whole ones, until about
BYTES are read; the common state and what describes the content are always loaded. No GPU is needed.
"""

import contextlib
import importlib
import importlib.metadata
import json
import os
import sys
import tempfile
from typing import Any

MARKER = "bedplate-checkpoint: "
BATCH_BYTES = 256 * 1024 * 1024


def main(path: str, most_bytes: int) -> dict[str, Any]:
    """What was loaded, or why not; `unable` where nothing is said of the checkpoint."""
    said: dict[str, Any] = {
        "megatron_core": _version("megatron-core"), "torch": None, "unable": "", "faults": [], "read": {},
    }  # fmt: skip
    try:
        torch = importlib.import_module("torch")
        said["torch"] = str(torch.__version__)
        importlib.import_module("megatron.core")
        said["megatron_core"] = (
            said["megatron_core"] or importlib.import_module("megatron.core.package_info").__version__
        )
    except Exception as fault:  # noqa: BLE001  whatever an image does not have
        return {**said, "unable": f"no torch and Megatron Core that can be imported: {type(fault).__name__}: {fault}"}
    if not os.path.isdir(path) or not os.listdir(path):  # noqa: PTH112, PTH208  the image's Python may be any
        return {**said, "unable": f"{path} is not there, or empty, where the loader runs"}
    try:
        megatron = _Megatron()
    except (ImportError, AttributeError) as fault:  # of the loader and this release, not of the checkpoint
        return {**said, "unable": f"this Megatron has another interface: {type(fault).__name__}: {fault}"}
    try:
        if os.path.exists(os.path.join(path, "metadata.json")):  # noqa: PTH110, PTH118
            said["read"] = _distributed(torch, megatron, path, most_bytes)
        elif any(name.startswith("mp_rank_") for name in os.listdir(path)):  # noqa: PTH208
            said["read"] = _legacy(torch, path, most_bytes)
        else:
            said["unable"] = "the loader reads torch_dist and mp_rank_00, and this is neither"
    except BaseException as fault:  # noqa: BLE001  what Megatron raises is the answer
        said["faults"].append(f"{type(fault).__name__}: {fault}")
    return said


class _Megatron:
    """What is used of Megatron's distributed checkpoints."""

    def __init__(self) -> None:
        found = importlib.import_module("megatron.core.dist_checkpointing.serialization")
        self.load, self.load_common_state_dict = found.load, found.load_common_state_dict
        self.load_content_metadata = getattr(found, "load_content_metadata", None)  # since 0.13
        self.load_tensors_metadata, self.load_sharded_metadata = (
            found.load_tensors_metadata,
            found.load_sharded_metadata,
        )
        self.objects = importlib.import_module("megatron.core.dist_checkpointing.mapping").ShardedObject


def _distributed(torch: Any, megatron: _Megatron, path: str, most_bytes: int) -> dict[str, int]:
    with tempfile.TemporaryDirectory() as folder:
        meeting = os.path.join(folder, "meeting")  # noqa: PTH118
        torch.distributed.init_process_group("gloo", init_method=f"file://{meeting}", rank=0, world_size=1)
        try:
            common = megatron.load_common_state_dict(path)
            if megatron.load_content_metadata is not None:
                megatron.load_content_metadata(preloaded_state_dict=common)
            tensors = megatron.load_tensors_metadata(path)
            everything = megatron.load_sharded_metadata(path)
            others = {key: value for key, value in everything.items() if isinstance(value, megatron.objects)}
            others = {key: value for key, value in others.items() if value.key != "common_state"}
            read = {"common": len(common), "keys": len(tensors) + len(others), "tensors": 0, "objects": 0, "bytes": 0}
            for batch in _batches(tensors, most_bytes):
                loaded = megatron.load(batch, path, validate_access_integrity=False)
                for key in batch:
                    read["tensors"] += 1
                    read["bytes"] += loaded[key].numel() * loaded[key].element_size()
            for key, value in others.items():
                megatron.load({key: value}, path, validate_access_integrity=False)
                read["objects"] += 1
        finally:
            torch.distributed.destroy_process_group()
    return read


def _batches(tensors: dict[str, Any], most_bytes: int) -> list[dict[str, Any]]:
    """Tensors spread over the whole checkpoint, the first and the last among them, up to about most_bytes."""
    keys = sorted(tensors)
    order: list[str] = []
    step = 1 << max(len(keys) - 1, 1).bit_length()
    seen: set[int] = set()
    while step and len(order) < len(keys):  # every half, quarter, eighth …: whatever the limit, no part is left out
        for index in [*range(0, len(keys), step), len(keys) - 1]:
            if index not in seen:
                seen.add(index)
                order.append(keys[index])
        step //= 2
    batches: list[dict[str, Any]] = []
    here, total = BATCH_BYTES, 0
    for key in order:
        size = 4
        for number in tensors[key].global_shape:
            size *= number
        if batches and total + size > most_bytes:
            continue
        if here + size > BATCH_BYTES:
            batches.append({})
            here = 0
        batches[-1][key] = tensors[key]
        here, total = here + size, total + size
    return batches


def _legacy(torch: Any, path: str, most_bytes: int) -> dict[str, int]:
    """Files of ranks, as the release loads them: with weights_only=True where it has a list of classes for that."""
    try:
        importlib.import_module("megatron.core.safe_globals")
        weights_only = True
    except ImportError:
        weights_only = False
    read = {"common": 0, "keys": 0, "tensors": 0, "objects": 0, "bytes": 0}
    for folder, _, names in sorted(os.walk(path)):
        for name in sorted(names):
            if not name.endswith(".pt") or (read["tensors"] and read["bytes"] > most_bytes):
                continue
            file = os.path.join(folder, name)  # noqa: PTH118
            found = torch.load(file, map_location="cpu", weights_only=weights_only)
            read["common"] += isinstance(found, dict)
            todo = [found]
            while todo:
                item = todo.pop()
                if isinstance(item, dict):
                    todo.extend(item.values())
                elif isinstance(item, list | tuple):
                    todo.extend(item)
                elif isinstance(item, torch.Tensor):
                    read["keys"] += 1
                    read["tensors"] += 1
                    read["bytes"] += item.numel() * item.element_size()
    return read


def _version(name: str) -> str | None:
    with contextlib.suppress(importlib.metadata.PackageNotFoundError):
        return importlib.metadata.version(name)
    return None


if __name__ == "__main__":
    answer = main(sys.argv[1], int(sys.argv[2]))
    print("\n" + MARKER + json.dumps(answer), flush=True)  # noqa: T201  the one line that is read
