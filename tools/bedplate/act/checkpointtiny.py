"""Save or load a tiny checkpoint with the Megatron and torch that run this file: it is sent to the Python of an image.

    python - save PATH < checkpointtiny.py         # PATH: an empty directory
    python - load PATH... < checkpointtiny.py      # a line for each: bedplate-checkpoint: {"path": …}

Nothing of bedplate is imported here: the image does not have it. What is saved is what a run saves, small: tensors of
model and optimizer, an object of every rank, arguments and iteration. It is loaded in Megatron's strictest mode
(`raise_all`) and compared number by number. No GPU is needed, and none is used.
"""

import argparse
import contextlib
import importlib
import importlib.metadata
import json
import os
import sys
import tempfile
from collections.abc import Callable, Iterator
from typing import Any

MARKER = "bedplate-checkpoint: "
ITERATION, LAYERS = 7, 2


def main(verb: str, paths: list[str]) -> Iterator[dict[str, Any]]:
    """What came of each path: versions, `unable` where nothing is said of Megatron, `faults`, what was read."""
    said: dict[str, Any] = {"megatron_core": _version("megatron-core"), "torch": None, "unable": "", "faults": []}
    os.environ["CUDA_VISIBLE_DEVICES"] = ""
    # Megatron saves through a process that multiprocessing spawns, which looks for this program's file: stdin has none.
    vars(sys.modules["__main__"]).pop("__file__", None)
    try:
        torch = importlib.import_module("torch")
        said["torch"] = str(torch.__version__)
        _without_gpu(torch)
        importlib.import_module("megatron.core")
        said["megatron_core"] = (
            said["megatron_core"] or importlib.import_module("megatron.core.package_info").__version__
        )
        megatron = _Megatron()
    except Exception as fault:  # noqa: BLE001  whatever an image does not have
        unable = f"no torch and Megatron Core that can be used: {type(fault).__name__}: {fault}"
        yield from ({**said, "path": path, "unable": unable} for path in paths)
        return
    with tempfile.TemporaryDirectory() as folder:
        meeting = os.path.join(folder, "meeting")  # noqa: PTH118  the image's Python may be any
        torch.distributed.init_process_group("gloo", init_method=f"file://{meeting}", rank=0, world_size=1)
        for path in paths:
            try:
                done = megatron.save(torch, path) if verb == "save" else megatron.load(torch, path)
            except Exception as fault:  # noqa: BLE001  each release has its own
                yield {**said, "path": path, "read": {}, "faults": [f"{type(fault).__name__}: {fault}"]}
            else:
                yield {**said, "path": path, **done}
        torch.distributed.destroy_process_group()


class _Megatron:
    """What is used of Megatron's distributed checkpoints."""

    def __init__(self) -> None:
        self.checkpoints = importlib.import_module("megatron.core.dist_checkpointing")
        self.parallel = importlib.import_module("megatron.core.parallel_state")
        mapping = importlib.import_module("megatron.core.dist_checkpointing.mapping")
        self.tensor, self.object = mapping.ShardedTensor, mapping.ShardedObject

    def save(self, torch: Any, path: str) -> dict[str, Any]:
        if not self.parallel.model_parallel_is_initialized():
            self.parallel.initialize_model_parallel()
        arguments = argparse.Namespace(
            tensor_model_parallel_size=1, pipeline_model_parallel_size=1, world_size=1, num_layers=LAYERS
        )
        tree = {
            **self._sharded(torch, torch.clone, _state(torch)), "args": arguments, "iteration": ITERATION,
            "checkpoint_version": 3.0,
        }  # fmt: skip
        content = {"distrib_optim_sharding_type": "dp_reshardable"}
        try:
            self.checkpoints.save(tree, path, content_metadata=content)
        except TypeError:  # before 0.13 there was none
            self.checkpoints.save(tree, path)
        return {"read": {}}

    def load(self, torch: Any, path: str) -> dict[str, Any]:
        found = self.checkpoints.load(self._sharded(torch, torch.zeros_like, None), path, strict="raise_all")
        faults = [
            f"{key} has other numbers than were saved"
            for key, wanted in _numbers(torch).items()
            if not torch.equal(found[key], wanted)
        ]
        state = found["rng_state"][0]
        if not torch.equal(state["torch"], _state(torch)["torch"]) or state["python"] != _state(torch)["python"]:
            faults.append("rng_state is another than was saved")
        if found.get("iteration") != ITERATION or found["args"].num_layers != LAYERS:
            faults.append("the common state is another than was saved")
        numbers = _numbers(torch).values()
        size = sum(value.numel() * value.element_size() for value in numbers)
        read = {"common": len(found), "tensors": len(numbers), "objects": 1, "keys": len(numbers) + 1, "bytes": size}
        return {"faults": faults, "read": read}

    def _sharded(self, torch: Any, made: Callable[[Any], Any], state: Any) -> dict[str, Any]:
        tree = {
            key: self.tensor.from_rank_offsets(key, made(value), replica_id=0)
            for key, value in _numbers(torch).items()
        }  # fmt: skip
        held = None if state is None else [state]
        return {**tree, "rng_state": self.object("rng_state", held, (1,), (0,), replica_id=0)}


def _numbers(torch: Any) -> dict[str, Any]:
    numbers = torch.arange(12.0).reshape(3, 4)
    return {
        "model.weight": numbers, "model.bias": torch.ones(5, dtype=torch.bfloat16),
        "optimizer.state.exp_avg.weight": numbers / 2,
    }  # fmt: skip


def _state(torch: Any) -> dict[str, Any]:
    return {"python": (3, tuple(range(10)), None), "torch": torch.arange(16, dtype=torch.uint8)}


def _without_gpu(torch: Any) -> None:
    """What saving asks of CUDA in every release since 0.14: which device, and to wait for it."""
    cpu = torch.device("cpu")
    torch.cuda.current_device = lambda: cpu
    torch.cuda.synchronize = lambda *_: None
    torch.Tensor.cuda = lambda self, *_args, **_named: self
    for name in ("tensor", "empty", "zeros", "ones"):
        setattr(torch, name, _on_cpu(getattr(torch, name), cpu))


def _on_cpu(factory: Callable[..., Any], cpu: Any) -> Callable[..., Any]:
    def made(*args: Any, **named: Any) -> Any:
        if str(named.get("device", "")).startswith("cuda"):
            named["device"] = cpu
        return factory(*args, **named)

    return made


def _version(name: str) -> str | None:
    with contextlib.suppress(importlib.metadata.PackageNotFoundError):
        return importlib.metadata.version(name)
    return None


if __name__ == "__main__":
    for answer in main(sys.argv[1], sys.argv[2:]):
        print("\n" + MARKER + json.dumps(answer), flush=True)  # noqa: T201  the lines that are read
