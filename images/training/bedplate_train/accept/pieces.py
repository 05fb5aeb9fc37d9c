"""A model's tensors whatever its layout: filled from their names, and put together again from their parts.

Megatron's own description for checkpoints says where a rank's part of a tensor lies in the whole one. So two layouts
can begin with the same numbers, and what they made of them can be compared.
"""

import hashlib
from collections.abc import Callable, Iterable
from typing import Any

import torch
from megatron.core import parallel_state
from megatron.core.dist_checkpointing.dict_utils import nested_values
from megatron.core.dist_checkpointing.mapping import ShardedTensor, apply_factories

type Piece = tuple[str, tuple[int, ...], tuple[int, ...], torch.Tensor]  # name, whole shape, offset, this part


def described(module: Any) -> list[ShardedTensor]:
    """This rank's parts; their data are views of the parameters."""
    metadata = {
        "singleton_local_shards": False,
        "dp_cp_group": parallel_state.get_data_parallel_group(with_context_parallel=True),
    }
    tree = module.sharded_state_dict(metadata=metadata)
    apply_factories(tree)
    return [each for each in nested_values(tree) if isinstance(each, ShardedTensor)]


@torch.no_grad()
def fill(module: Any, seed: int) -> None:
    """The same whole tensors in every layout: each from a generator seeded by its name; norms stay ones."""
    for part in described(module):
        if "norm" in part.key:
            continue
        number = int.from_bytes(hashlib.sha256(f"{seed} {part.key}".encode()).digest()[:7], "big")
        whole = torch.empty(part.global_shape).normal_(0, 0.05, generator=torch.Generator().manual_seed(number))
        part.data.copy_(
            whole[_slice(part.global_offset, part.data.shape, len(part.global_shape))].reshape(part.data.shape)
        )


def _slice(offset: Iterable[int], shape: Iterable[int], dimensions: int) -> tuple[slice, ...]:
    """Where a part lies; a part may lack leading dimensions, in which it is one row."""
    sizes = tuple(shape)
    sizes = (1,) * (dimensions - len(sizes)) + sizes
    return tuple(slice(o, o + s) for o, s in zip(offset, sizes, strict=True))


def parts(module: Any, value: Callable[[torch.nn.Parameter], torch.Tensor]) -> list[Piece]:
    """This rank's parts of something that each parameter has: itself, its gradient."""
    kept = {p: p.data for p in module.parameters()}
    try:
        for parameter in kept:
            parameter.data = value(parameter).detach().to(parameter.dtype)
        return [
            (d.key, tuple(d.global_shape), tuple(d.global_offset), d.data.detach().float().cpu().clone())
            for d in described(module)
        ]
    finally:
        for parameter, data in kept.items():
            parameter.data = data


def whole(pieces: Iterable[Piece]) -> dict[str, torch.Tensor]:
    """The tensors that all ranks' parts make up.

    Raises:
        ValueError: a tensor has a hole.
    """
    found: dict[str, torch.Tensor] = {}
    for name, shape, offset, part in pieces:
        if name not in found:
            found[name] = torch.full(shape, torch.nan)
        place = _slice(offset, part.shape, len(shape))
        found[name][place] = part.reshape(found[name][place].shape)
    holes = [name for name, tensor in found.items() if torch.isnan(tensor).any()]
    if holes:
        raise ValueError(f"no rank has all of {', '.join(holes)}, or a value is no number")
    return found


def distance(left: dict[str, torch.Tensor], right: dict[str, torch.Tensor]) -> tuple[float, str]:
    """The largest difference of any tensor, relative to its largest value, and the tensor's name.

    Raises:
        ValueError: the tensors are not the same ones.
    """
    if not left or left.keys() != right.keys():
        raise ValueError(f"not the same tensors: {sorted(left.keys() ^ right.keys())[:4]}")
    return max(((left[n] - right[n]).abs().max().item() / max(right[n].abs().max().item(), 1e-30), n) for n in left)
