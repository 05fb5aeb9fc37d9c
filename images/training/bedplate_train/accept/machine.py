"""Questions 2 and 3, on every device at once: does it compute the known answers, and do the devices exchange them?"""

import hashlib
import math
import time
from collections.abc import Callable
from typing import Any

import torch
import torch.distributed as dist

from bedplate_train import cpu
from bedplate_train.accept.profile import Compute, Exchange


def numbers(size: int, seed: int) -> torch.Tensor:
    """A matrix of whole numbers from -8 to 8."""
    rows = torch.arange(size, dtype=torch.int64).reshape(-1, 1)
    columns = torch.arange(size, dtype=torch.int64).reshape(1, -1)
    return (rows * (7 + seed) + columns * (13 + 2 * seed) + rows * columns % 5) % 17 - 8


def product_digest(product: torch.Tensor) -> str:
    return hashlib.sha256(product.to("cpu").to(torch.int64).contiguous().numpy().tobytes()).hexdigest()


def matrix(given: Compute) -> dict[str, Any]:
    """FP32 by digest, BF16 by tolerance: sums of products below 2^24 are exact in FP32."""
    device = torch.device("cuda", torch.cuda.current_device()) if not cpu.without_gpu() else torch.device("cpu")
    left, right = numbers(given.matrix, 0).float().to(device), numbers(given.matrix, 1).float().to(device)
    exact = left @ right
    rounded = (left.bfloat16() @ right.bfloat16()).float()
    error = float((rounded - exact).abs().max() / exact.abs().max())
    digest = product_digest(exact)
    return {
        "digest": digest,
        "bf16_error": error,
        "passed": digest == given.digest and math.isfinite(error) and error <= given.bf16,
    }


def attention(given: Compute) -> dict[str, Any]:
    """Torch's attention in BF16, which is fused on a GPU, against a softmax written out in FP32."""
    generator = torch.Generator().manual_seed(5)
    shape = (2, 4, 64, 32)
    query, key, value = (torch.empty(shape).normal_(generator=generator).bfloat16().cuda() for _ in range(3))
    fused = torch.nn.functional.scaled_dot_product_attention(query, key, value, is_causal=True).float()
    scores = query.float() @ key.float().transpose(-1, -2) / math.sqrt(shape[-1])
    hidden = torch.triu(torch.full(scores.shape[-2:], -math.inf), 1).to(scores.device)
    written = torch.softmax(scores + hidden, -1) @ value.float()
    error = float((fused - written).abs().max())
    return {"error": error, "passed": math.isfinite(error) and error <= given.attention}


def fused(given: Compute) -> dict[str, Any]:
    """Transformer Engine's norm against its formula; without a GPU there is none, and nothing passes."""
    if cpu.without_gpu():
        return {"looked_at": False, "said": "no Transformer Engine without a GPU: not answered"}
    import transformer_engine.pytorch as te

    rows = torch.linspace(-3, 3, 64 * 128, device="cuda", dtype=torch.bfloat16).reshape(64, 128)
    made = te.RMSNorm(128, eps=1e-5, params_dtype=torch.bfloat16)(rows).float()
    wide = rows.float()
    error = float((made - wide * torch.rsqrt(wide.pow(2).mean(-1, keepdim=True) + 1e-5)).abs().max())
    return {"looked_at": True, "error": error, "passed": math.isfinite(error) and error <= given.attention}


def trained(trainer: Any, given: Compute) -> dict[str, Any]:
    """The small model: the loss of a guess, a gradient for every parameter, steps as long as AdamW's are.

    Megatron's warm-up begins at rate 0: the first step moves nothing, the second as far as its rate says.
    """
    optimizer = trainer.assembly.optimizer
    masters = [
        parameter
        for each in getattr(optimizer, "chained_optimizers", [optimizer])
        for group in each.optimizer.param_groups
        for parameter in group["params"]
        if parameter.numel()
    ]
    start = [m.detach().clone() for m in masters]
    first = trainer.step()
    early = sum(not torch.equal(m, s) for m, s in zip(masters, start, strict=True))
    rate = optimizer.param_groups[0]["lr"]
    decay = trainer.arguments.weight_decay
    second = trainer.step()
    without = sorted(
        n for n, p in trainer.assembly.module.named_parameters() if not _alive(getattr(p, "main_grad", None))
    )
    moved = [(m.detach() - s).abs().max().item() for m, s in zip(masters, start, strict=True)]
    bounds = [1.2 * rate * (1 + decay * s.abs().max().item()) for s in start]
    still = sum(not m > 0 for m in moved)
    far = sum(not m <= b for m, b in zip(moved, bounds, strict=True))
    loss, norm = _of_any(first.get("loss")), _of_any(second.get("gradient_norm"))
    guess = math.log(trainer.configuration.data.tokenizer.vocabulary)
    fine = math.isfinite(loss) and abs(loss - guess) <= given.first_loss and math.isfinite(norm) and norm > 0
    return {
        "loss": loss,
        "guess": guess,
        "gradient_norm": norm,
        "parameters": len(masters),
        "moved_at_rate_0": early,
        "unmoved": still,
        "moved_too_far": far,
        "without_gradient": without,
        "passed": fine and bool(masters) and not (early or still or far or without),
    }


def _alive(gradient: torch.Tensor | None) -> bool:
    return gradient is not None and bool(torch.isfinite(gradient).all()) and bool((gradient != 0).any())


def _of_any(mine: float | None) -> float:
    """A number that one rank knows, on every rank."""
    said: list[float | None] = [None] * dist.get_world_size()
    dist.all_gather_object(said, mine)
    return next((float(v) for v in said if v is not None), math.nan)


TYPES = (torch.int32, torch.int64, torch.float32, torch.float64, torch.bfloat16)


def sums() -> dict[str, Any]:
    """1 + 2 + ... + n on every rank, in several types: 36 for eight."""
    world, rank = dist.get_world_size(), dist.get_rank()
    expected = world * (world + 1) // 2
    found = {}
    for kind in TYPES:
        value = torch.full((1,), rank + 1, dtype=kind, device=torch.cuda.current_device())
        dist.all_reduce(value)
        found[str(kind).removeprefix("torch.")] = float(value.item())
    return {"expected": expected, "found": found, "passed": all(v == expected for v in found.values())}


def larger(given: Exchange) -> list[dict[str, Any]]:
    """Sums of known patterns, ascending sizes: right in every element, and how fast.

    Bus bandwidth as nccl-tests defines it for a sum: 2 (n-1)/n x bytes / seconds.
    """
    world, rank = dist.get_world_size(), dist.get_rank()
    found = []
    for size in given.sizes:
        count = max(1, size // 4)
        pattern = torch.arange(count, dtype=torch.float32) % 251
        best = math.inf
        right = True
        for _ in range(3):
            value = (pattern + rank).to(torch.cuda.current_device())
            dist.barrier()
            torch.cuda.synchronize()
            began = time.perf_counter()
            dist.all_reduce(value)
            torch.cuda.synchronize()
            best = min(best, time.perf_counter() - began)
            right = right and torch.equal(value.cpu(), pattern * world + world * (world - 1) // 2)
        bandwidth = 2 * (world - 1) / world * count * 4 / best / 1e9
        found.append({"bytes": count * 4, "seconds": best, "bus_gb_per_s": bandwidth, "right": right})
    return found


def fast_enough(found: list[dict[str, Any]], given: Exchange, reference: list[dict[str, Any]] | None) -> list[str]:
    """What is too slow, or wrong: sentences; none when all is well."""
    said = [f"{each['bytes']} bytes: wrong sum" for each in found if not each["right"]]
    if not found:
        return ["no size was measured"]
    top = found[-1]
    if top["bus_gb_per_s"] < given.floor_gb_per_s:
        said.append(f"{top['bytes']} bytes: {top['bus_gb_per_s']:.3g} GB/s, the floor is {given.floor_gb_per_s:g}")
    for each in reference or []:
        mine = next((f for f in found if f["bytes"] == each["bytes"]), None)
        if mine and mine["bus_gb_per_s"] < given.of_reference * each["bus_gb_per_s"]:
            said.append(
                f"{each['bytes']} bytes: {mine['bus_gb_per_s']:.3g} GB/s, "
                f"the reference machine has {each['bus_gb_per_s']:.3g}"
            )
    return said


def everywhere(name: str, mine: dict[str, Any]) -> dict[str, Any]:
    """The answers of all ranks, and the ranks that failed: the same on each rank."""
    said: list[Any] = [None] * dist.get_world_size()
    dist.all_gather_object(said, mine)
    bad = [rank for rank, each in enumerate(said) if each.get("passed") is False]
    unasked = [rank for rank, each in enumerate(said) if "passed" not in each]
    return {"check": name, "failed_ranks": bad, "not_answered_ranks": unasked, "ranks": said}


def in_order(
    checks: list[tuple[str, Callable[[], dict[str, Any]]]], tell: Callable[[str], None]
) -> list[dict[str, Any]]:
    """Checks until one fails."""
    found = []
    for name, check in checks:
        tell(name)
        found.append(everywhere(name, check()))
        if found[-1]["failed_ranks"]:
            break
    return found
