"""The state of a run, in parts, as digests: two runs are equal when each part of each rank is.

A part is what is restored by itself, so that a difference names what went wrong:

| part | what |
|---|---|
| parameters | every parameter of the model |
| optimizer | moments and FP32 master weights of this rank |
| optimizer step | the step count in each parameter group |
| schedule | steps of the scheduler, and the learning rate and weight decay of each group |
| generators | Python, numpy, torch, the device, Megatron's tracker |
| data position | step, samples consumed |

Digests are of bits in memory: a checkpoint's files hold padding that was never written and cannot be compared.
"""

import hashlib
import pickle
import random
from collections.abc import Mapping
from typing import Any

PARTS = ("parameters", "optimizer", "optimizer step", "schedule", "generators", "data position")

type Digests = dict[str, dict[str, str]]  # part -> name of a value -> what it is, or the sha256 of its bits


def tensor_digest(value: Any) -> str:
    """Shape, type and bits of a tensor."""
    import torch

    flat = value.detach().to("cpu").contiguous().reshape(-1)
    found = hashlib.sha256(f"{tuple(value.shape)} {value.dtype}\n".encode())
    if flat.numel():
        found.update(flat.view(torch.uint8).numpy().data)
    return found.hexdigest()


def plain_digest(value: Any) -> str:
    """Bits of a plain value: nested tuples, arrays, numbers."""
    return hashlib.sha256(pickle.dumps(value, protocol=4)).hexdigest()


def generators() -> dict[str, Any]:
    """Every generator that draws in a run; what a checkpoint keeps."""
    import numpy as np
    import torch
    from megatron.core.tensor_parallel.random import get_cuda_rng_tracker

    return {
        "python": random.getstate(),
        "numpy": np.random.get_state(),  # noqa: NPY002 - Megatron draws from the global one
        "torch": torch.get_rng_state(),
        "device": torch.cuda.get_rng_state(),
        "tracker": get_cuda_rng_tracker().get_states(),
    }


def restore_generators(kept: Mapping[str, Any]) -> None:
    import numpy as np
    import torch
    from megatron.core.tensor_parallel.random import get_cuda_rng_tracker

    random.setstate(kept["python"])
    np.random.set_state(kept["numpy"])  # noqa: NPY002
    torch.set_rng_state(kept["torch"])
    torch.cuda.set_rng_state(kept["device"])
    get_cuda_rng_tracker().set_states(kept["tracker"])


def generator_digests(kept: Mapping[str, Any]) -> dict[str, str]:
    import numpy as np

    kind, keys, *rest = kept["numpy"]
    found = {
        "python": plain_digest(kept["python"]),
        "numpy": plain_digest((str(kind), np.asarray(keys).tobytes(), tuple(rest))),
        "torch": tensor_digest(kept["torch"]),
        "device": tensor_digest(kept["device"]),
    }
    for name, value in kept["tracker"].items():
        found[f"tracker {name}"] = tensor_digest(value) if hasattr(value, "dtype") else repr(value)
    return found


def differences(left: Mapping[int, Digests], right: Mapping[int, Digests]) -> dict[str, list[str]]:
    """Part -> what differs, `rank 3: decoder.layers.0...`; empty when all is equal.

    Raises:
        ValueError: nothing was compared: no rank, or other ranks; an empty comparison must not pass.
    """
    if not left or left.keys() != right.keys():
        raise ValueError(f"ranks {sorted(left)} cannot be compared with ranks {sorted(right)}")
    found: dict[str, list[str]] = {}
    for rank in sorted(left):
        for part in PARTS:
            a, b = left[rank].get(part) or {}, right[rank].get(part) or {}
            if not a or not b:
                raise ValueError(f"rank {rank}: part {part} is empty")
            names = [n for n in sorted({*a, *b}) if a.get(n) != b.get(n)]
            if names:
                found.setdefault(part, []).extend(f"rank {rank}: {name}" for name in names)
    return found


def told(found: Mapping[str, list[str]]) -> str:
    """For people: `generators (16 values, rank 0: python, …)`."""
    if not found:
        return "no difference"
    return "; ".join(f"{part} ({len(names)} differ, first {names[0]})" for part, names in found.items())


def count(digests: Mapping[int, Digests]) -> int:
    return sum(len(names) for rank in digests.values() for names in rank.values())
