"""Question 5: does it learn what it should? Every check has a control that must miss.

One process is the reference. Each layout starts from the same numbers (pieces.py), sees the same samples, and must come
to the same loss, the same gradients, the same parameters: FP32 first, then BF16.
"""

import contextlib
import os
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
from megatron.core.datasets.gpt_dataset import _get_ltor_masks_and_position_ids as masks
from megatron.core.pipeline_parallel import get_forward_backward_func

from bedplate_train import trainer as training
from bedplate_train.accept import pieces
from bedplate_train.accept.profile import Learning, Profile, toy_configuration
from bedplate_train.configuration import Configuration, read
from bedplate_train.steplog import Resumption

STEPS = 3  # the first is at rate 0; the second moves, the third sees what the second did

LAYOUTS: dict[str, dict[str, Any]] = {
    "one process": {},
    "data": {"replicas": 2, "recompute": "selective"},
    "tensor": {"tensor": 2, "sequence": True, "recompute": "full"},
    "pipeline": {"pipeline": 2, "stages": [1, 3]},
    "combined": {"tensor": 2, "sequence": True, "pipeline": 2, "replicas": 2},
}
OVERLAPS: dict[str, dict[str, bool]] = {
    "off": {"distributed": True, "overlap_reduce": False, "overlap_gather": False},
    "reduction": {"distributed": True, "overlap_reduce": True, "overlap_gather": False},
    "both": {"distributed": True, "overlap_reduce": True, "overlap_gather": True},
}
PLAIN = {"distributed": False, "overlap_reduce": False, "overlap_gather": False}


def configuration(
    profile: Profile,
    run: Path,
    *,
    replicas: int = 1,
    optimizer: dict[str, bool] | None = None,
    precision: str = "fp32",
    **parallel: Any,
) -> Configuration:
    """The small model without dropout, cut as asked."""
    import yaml

    given = toy_configuration(profile, run, steps=20, every=1000)
    parallel = {"tensor": 1, "pipeline": 1, "sequence": False, **parallel}
    given["parallel"] = parallel
    given["machines"]["gpus_per_server"] = parallel["tensor"] * parallel["pipeline"] * replicas
    given["model"]["dropout"] = 0.0
    given["precision"] = precision
    given["log"] = {"waiting_every": 1}
    given["optimizer"] |= {"warmup": 1, "clip": 1.0, **(optimizer or PLAIN)}
    return read(yaml.safe_dump(given), "acceptance")


class Stage:
    """Ranks that take part in one layout after another, in the same processes."""

    def __init__(self, profile: Profile, folder: Path) -> None:
        self.profile, self.folder = profile, folder
        self.rank, self.world = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
        agents = os.environ.get("TORCHELASTIC_USE_AGENT_STORE") == "True"
        self.store = dist.TCPStore(
            os.environ["MASTER_ADDR"], int(os.environ["MASTER_PORT"]), is_master=not agents and self.rank == 0
        )
        self.number = 0

    @contextlib.contextmanager
    def layout(self, given: Configuration) -> Iterator[training.Trainer | None]:
        """A trainer on the first ranks, None on the others, who wait."""
        self.number += 1
        world = given.machines.gpus_per_server
        taking_part = self.rank < world
        name = f"acceptance-{self.number}"
        try:
            if not taking_part:
                yield None
            else:
                os.environ.update(WORLD_SIZE=str(world), LOCAL_WORLD_SIZE=str(world))
                made = training.Trainer(
                    given, store=dist.PrefixStore(name, self.store), rank=self.rank, world_size=world
                )
                made.resumption = Resumption(1, 0, 0, 0)
                yield made
                training.leave()
        finally:
            os.environ.update(WORLD_SIZE=str(self.world), LOCAL_WORLD_SIZE=str(self.world))
        self.meet(f"{name}-left")

    def meet(self, name: str) -> None:
        """All ranks, of any layout."""
        self.store.add(name, 1)
        while int(self.store.add(name, 0)) < self.world:
            time.sleep(0.05)


def afresh(trainer: training.Trainer) -> None:
    """The common numbers in the model, and an optimizer that has seen nothing."""
    pieces.fill(trainer.assembly.module, 11)
    optimizer = trainer.assembly.optimizer
    optimizer.reload_model_params()
    if trainer.arguments.use_distributed_optimizer:
        return  # its state is laid out when it is made; a trainer is made for each layout
    for each in getattr(optimizer, "chained_optimizers", [optimizer]):
        each.optimizer.state.clear()
        for group in each.optimizer.param_groups:
            group.pop("step", None)


def ran(trainer: training.Trainer) -> dict[str, Any]:
    """A few steps from the common numbers: losses, gradients of the first, parameters after the last."""
    afresh(trainer)
    whole: dict[str, Any] = {}
    lines = []
    for _ in range(STEPS):
        lines.append(trainer.step())
        if len(lines) == 1 and not trainer.arguments.use_distributed_optimizer:
            whole["gradients"] = gathered(trainer, lambda p: p.main_grad)
    trainer.settle()
    whole["parameters"] = gathered(trainer, lambda p: p.data)
    told: list[Any] = [None] * dist.get_world_size()
    dist.all_gather_object(told, lines)
    logged = next(each for each in told if "loss" in each[0])
    whole["losses"] = [each["loss"] for each in logged]
    whole["loss_tokens"] = [each["loss_tokens"] for each in logged]
    whole["seconds"] = [each["seconds"] for each in logged]
    whole["peak_bytes"] = logged[-1]["peak_bytes"]
    whole["waited_s"] = [each["waited_s"] for each in logged]
    return whole


def gathered(trainer: training.Trainer, value: Callable[[Any], torch.Tensor]) -> dict[str, torch.Tensor]:
    """Whole tensors, on every rank of the layout: the model is small."""
    told: list[Any] = [None] * dist.get_world_size()
    dist.all_gather_object(told, pieces.parts(trainer.assembly.module, value))
    return pieces.whole(piece for each in told for piece in each)


def compared(found: dict[str, Any], reference: dict[str, Any], tolerance: float) -> dict[str, Any]:
    """A layout's run against one process."""
    losses = max(abs(a - b) / abs(b) for a, b in zip(found["losses"], reference["losses"], strict=True))
    parameters, worst = pieces.distance(found["parameters"], reference["parameters"])
    told: dict[str, Any] = {
        "losses": found["losses"],
        "loss_tokens": found["loss_tokens"],
        "loss_error": losses,
        "parameter_error": parameters,
        "worst_parameter": worst,
        "seconds": found["seconds"],
        "peak_bytes": found["peak_bytes"],
        "waited_s": found["waited_s"],
    }
    errors = [losses, parameters]
    if "gradients" in found and "gradients" in reference:
        error, name = pieces.distance(found["gradients"], reference["gradients"])
        told |= {"gradient_error": error, "worst_gradient": name, "gradients": sample(found["gradients"])}
        errors.append(error)
    told["parameters"] = sample(found["parameters"])
    told["tolerance"] = tolerance
    same = found["loss_tokens"] == reference["loss_tokens"]
    return {**told, "passed": same and all(e <= tolerance for e in errors)}  # a NaN is not below anything


def sample(tensors: dict[str, torch.Tensor]) -> dict[str, list[float]]:
    """Of a few tensors the norm and first values: what a person compares."""
    chosen = sorted(tensors)[:: max(1, len(tensors) // 4)]
    return {n: [float(tensors[n].norm()), *(float(v) for v in tensors[n].flatten()[:3])] for n in chosen}


def layouts(stage: Stage, tell: Callable[[str], None]) -> list[dict[str, Any]]:
    """FP32: each way to cut the model against one process, then the overlaps; then BF16."""
    limits = stage.profile.learning
    found: list[dict[str, Any]] = []
    reference: dict[str, dict[str, Any]] = {}

    def ask(name: str, tolerance: float, against: str, *, consumed: int = 0, **how: Any) -> None:
        tell(name)
        with stage.layout(configuration(stage.profile, stage.folder / "layouts", **how)) as trainer:
            if trainer is None:
                return
            trainer.consumed = consumed
            mine = ran(trainer)
            if stage.rank == 0:
                if not against:
                    reference[name] = mine
                else:
                    found.append(
                        {"check": name, "against": against, "how": how, **compared(mine, reference[against], tolerance)}
                    )

    ask("fp32 one process", 0, "", **LAYOUTS["one process"])
    for name in ("data", "tensor", "pipeline", "combined"):
        ask(f"fp32 {name}", limits.fp32, "fp32 one process", **LAYOUTS[name])
    for name, optimizer in OVERLAPS.items():
        ask(f"fp32 overlap {name}", limits.fp32, "fp32 one process", **LAYOUTS["combined"], optimizer=optimizer)
    ask("bf16 one process", 0, "", precision="bf16", **LAYOUTS["one process"])
    ask(
        "bf16 combined",
        limits.bf16,
        "bf16 one process",
        precision="bf16",
        **LAYOUTS["combined"],
        optimizer=OVERLAPS["both"],
    )
    ask("control: one process, other samples", limits.fp32, "fp32 one process", consumed=8, **LAYOUTS["one process"])
    if found:  # on rank 0
        found[-1] |= {"must_miss": True, "passed": not found[-1]["passed"]}
    return found


# --- one process ---------------------------------------------------------------------------------


def row(profile_end: int, vocabulary: int, length: int, seed: int, ends: tuple[int, ...]) -> dict[str, torch.Tensor]:
    """A packed row: documents end at `ends`; nothing is learned from what follows a marker."""
    chance = torch.Generator().manual_seed(seed)
    tokens = torch.randint(3, vocabulary, (length + 1,), generator=chance)
    for end in ends:
        tokens[end] = profile_end
    return framed(tokens, profile_end)


def framed(tokens: torch.Tensor, end: int) -> dict[str, torch.Tensor]:
    attention, loss, positions = masks(tokens[:-1], end, True, True, True, True)
    ends = [0, *(int(i) + 1 for i in (tokens[:-1] == end).nonzero().flatten()), len(tokens) - 1]
    return {
        "tokens": tokens[:-1],
        "labels": tokens[1:],
        "attention_mask": attention,
        "loss_mask": loss,
        "position_ids": positions,
        "padding": torch.tensor(0),
        "ends": torch.tensor(sorted(set(ends))),
    }


def stacked(rows: list[dict[str, torch.Tensor]], trainer: training.Trainer) -> dict[str, torch.Tensor]:
    """A micro-batch as the dataset's loader would give it."""
    names = [n for n in rows[0] if n != "ends" and not (trainer.packed and n == "attention_mask")]
    batch = {n: torch.stack([r[n] for r in rows]) for n in names}
    if trainer.packed:
        length = rows[0]["tokens"].numel()
        ends = [torch.cat([r["ends"], torch.full((length + 1 - len(r["ends"]),), length)]) for r in rows]
        batch["cu_seqlens"] = torch.stack(ends).to(torch.int32)
        batch["max_seqlen"] = torch.stack([(r["ends"][1:] - r["ends"][:-1]).max() for r in rows])
    return batch


LENGTHS = ((5,), (9, 20), (), (3, 7, 11, 30), (16,), (1, 2, 3, 4, 5, 6), (31,), (12,))  # ends in each of eight rows


def gradient(trainer: training.Trainer, rows: list[Any], micro: int, *, by_token: bool) -> dict[str, torch.Tensor]:
    """Accumulated over micro-batches; `by_token=False` is the control, a mean of means."""
    a = trainer.assembly
    a.parallel.zero_grad_buffer()
    a.config.calculate_per_token_loss = by_token
    a.config.timers = None

    def forward(batches: Any, module: Any) -> Any:
        output, summed = trainer._forward(batches, module)  # noqa: SLF001
        if by_token:
            return output, summed

        def mean(losses: torch.Tensor) -> Any:
            total, count, _ = summed(losses)
            return total / count, {}

        return output, mean

    groups = [rows[i : i + micro] for i in range(0, len(rows), micro)]
    length = rows[0]["tokens"].numel()
    try:
        get_forward_backward_func()(
            forward_step_func=forward,
            data_iterator=iter([stacked(g, trainer) for g in groups]),
            model=[a.parallel],
            num_microbatches=len(groups),
            seq_length=length * micro if trainer.packed else length,
            micro_batch_size=1 if trainer.packed else micro,
            forward_only=False,
        )
    finally:
        a.config.calculate_per_token_loss = True
    return pieces.whole(pieces.parts(a.module, lambda p: p.main_grad))


def overall(left: dict[str, torch.Tensor], right: dict[str, torch.Tensor]) -> float:
    """Largest difference over all tensors, relative to the largest value of all."""
    most = max(t.abs().max().item() for t in right.values())
    return max((left[n] - right[n]).abs().max().item() for n in right) / most


def accumulation(trainer: training.Trainer, limits: Learning) -> list[dict[str, Any]]:
    """Micro-batches of documents of different length against one large batch."""
    end, vocabulary = _tokenizer(trainer)
    rows = [row(end, vocabulary, 32, seed, ends) for seed, ends in enumerate(LENGTHS)]
    whole = gradient(trainer, rows, 8, by_token=True)
    means = gradient(trainer, rows, 8, by_token=False)
    found = []
    for micro in (1, 2, 4):
        error = overall(gradient(trainer, rows, micro, by_token=True), whole)
        control = overall(gradient(trainer, rows, micro, by_token=False), means)
        name = f"{8 // micro} micro-batches of {micro}"
        found.append({"check": f"{name} = one of 8", "error": error, "passed": error <= limits.accumulation})
        found.append(_control(f"mean of means, {name}", control, limits.control))
    bearing = [int(r["loss_mask"].sum()) for r in rows]
    return [{"check": "loss-bearing tokens of the rows", "found": bearing, "passed": len(set(bearing)) > 1}, *found]


def packing(trainer: training.Trainer, limits: Learning) -> list[dict[str, Any]]:
    """Three documents in a row: what is in the first must not reach the others, and packed is as good as alone."""
    end, vocabulary = _tokenizer(trainer)
    packed = row(end, vocabulary, 32, 1, (9, 20))
    changed = dict(packed)
    tokens = torch.cat([packed["tokens"], packed["labels"][-1:]])
    other = tokens.clone()
    other[:9] = (other[:9] + 1) % (vocabulary - 3) + 3
    changed = framed(other, end)
    usual, moved = logits(trainer, packed), logits(trainer, changed)
    difference = (usual - moved).abs()
    first, second = float(difference[:9].max()), float(difference[10:].max())
    alone = logits(trainer, framed(torch.cat([tokens[10:21], tokens[21:22]]), end))
    apart = float((alone[:11] - usual[10:21]).abs().max())
    joined = (logits(trainer, packed, isolated=False) - logits(trainer, changed, isolated=False)).abs()
    return [
        {"check": "the first document itself changes", "moved": first, "passed": first >= limits.control},
        {"check": "later documents do not see the first", "moved": second, "passed": second <= limits.isolation},
        {"check": "packed = alone", "error": apart, "passed": apart <= limits.packing},
        _control("plain causal attention", float(joined[10:].max()), limits.control),
    ]


@torch.no_grad()
def logits(trainer: training.Trainer, given: dict[str, torch.Tensor], *, isolated: bool = True) -> torch.Tensor:
    """Of one row; `isolated=False` is plain causal attention."""
    module = trainer.assembly.module
    length = given["tokens"].numel()
    positions = given["position_ids"] if isolated else torch.arange(length)
    mask = given["attention_mask"] if isolated else torch.triu(torch.ones(1, length, length), 1) > 0
    packing = None
    if trainer.packed:
        from megatron.core.packed_seq_params import PackedSeqParams

        ends = (given["ends"] if isolated else torch.tensor([0, length])).to(torch.int32).cuda()
        longest = int((ends[1:] - ends[:-1]).max())
        packing = PackedSeqParams(
            qkv_format="thd", cu_seqlens_q=ends, cu_seqlens_kv=ends, max_seqlen_q=longest, max_seqlen_kv=longest
        )
    module.eval()
    try:
        found = module(
            given["tokens"][None].cuda(),
            positions[None].cuda(),
            None if trainer.packed else mask[None].cuda(),
            packed_seq_params=packing,
        )
    finally:
        module.train()
    return found.float().cpu()[0]


def padding(trainer: training.Trainer, limits: Learning) -> list[dict[str, Any]]:
    """Padding bears no loss: what stands there changes no gradient."""
    end, vocabulary = _tokenizer(trainer)
    short = row(end, vocabulary, 32, 4, (19,))
    short["loss_mask"] = short["loss_mask"].clone()
    short["loss_mask"][20:] = 0
    other = {n: t.clone() for n, t in short.items()}
    other["labels"][20:] = (other["labels"][20:] + 7) % vocabulary
    usual = gradient(trainer, [short], 1, by_token=True)
    changed = gradient(trainer, [other], 1, by_token=True)
    error = overall(changed, usual)
    bare = {n: t.clone() for n, t in other.items()}
    bare["loss_mask"][20:] = 1
    control = overall(gradient(trainer, [bare], 1, by_token=True), usual)
    return [
        {"check": "labels in padding change no gradient", "error": error, "passed": error <= limits.isolation},
        _control("padding that bears loss", control, limits.control),
    ]


def end_marker(trainer: training.Trainer, limits: Learning) -> list[dict[str, Any]]:
    """The end of a document is learned; without loss on the marker it is not."""
    end, vocabulary = _tokenizer(trainer)
    rows = [row(end, vocabulary, 32, 40 + i, (7, 15, 23, 31)) for i in range(8)]
    bare = [{**r, "loss_mask": r["loss_mask"] * (r["labels"] != end)} for r in rows]

    def loss_of_end() -> float:
        found = []
        for each in rows:
            spread = torch.log_softmax(logits(trainer, each), -1)
            found.append(-spread[each["labels"] == end, end])
        return float(torch.cat(found).mean())

    def learned(given: list[dict[str, torch.Tensor]]) -> float:
        afresh(trainer)
        before = loss_of_end()
        for group in trainer.assembly.optimizer.param_groups:
            group["lr"] = 3e-3
        for _ in range(limits.end_steps):
            gradient(trainer, given, 8, by_token=True)
            trainer.assembly.optimizer.step()
        return before - loss_of_end()

    gain, control = learned(rows), learned(bare)
    return [
        {"check": "the loss of the end marker falls", "nats": gain, "passed": gain >= limits.end_gain},
        {
            "check": "control: no loss on the marker",
            "must_miss": True,
            "nats": control,
            "passed": control < limits.end_gain,
        },
    ]


def _tokenizer(trainer: training.Trainer) -> tuple[int, int]:
    tokenizer = trainer.configuration.data.tokenizer
    return tokenizer.end, tokenizer.vocabulary


def _control(name: str, error: float, least: float) -> dict[str, Any]:
    """A check that must miss: one that cannot fail proves nothing."""
    return {"check": f"control: {name}", "must_miss": True, "error": error, "passed": error >= least}


def alone(stage: Stage, tell: Callable[[str], None]) -> list[dict[str, Any]]:
    """The checks of one process, in FP32."""
    found: list[dict[str, Any]] = []
    with stage.layout(configuration(stage.profile, stage.folder / "alone")) as trainer:
        if trainer is not None:
            afresh(trainer)
            for check in (accumulation, packing, padding, end_marker):
                tell(check.__name__.replace("_", " "))
                found += check(trainer, stage.profile.learning)
    return found
