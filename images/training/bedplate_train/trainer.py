"""The training loop: steps, saves, a resume that is equal in every part, an end on which all ranks agree.

What it computes is set by Megatron's parsed arguments (arguments.py), what it sees by rows.py, what it keeps by
state.py and checkpoints.py. Nothing here knows whether a GPU is there.
"""

import datetime
import os
import random
import resource
import socket
import time
from argparse import Namespace
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
from megatron.core import dist_checkpointing, parallel_state
from megatron.core.dist_checkpointing.mapping import ShardedObject
from megatron.core.packed_seq_params import PackedSeqParams
from megatron.core.pipeline_parallel import get_forward_backward_func
from megatron.core.tensor_parallel.random import model_parallel_cuda_manual_seed
from megatron.core.timers import Timers
from megatron.core.utils import flatten_batch_for_packed_sequences
from megatron.training.determinism import DETERMINISM_ENV_VAR_DEFAULTS

from bedplate_train import arguments as flags
from bedplate_train import checkpoints, corpus, cpu, model, ranks, rows, shape, state, stopping
from bedplate_train.configuration import Configuration
from bedplate_train.faults import Failed, Fault, Refused
from bedplate_train.steplog import Resumption, StepLog, resumption
from bedplate_train.text import write_json

# What Megatron times while a rank waits for another one; see `waiting`.
WAITS = (
    *("forward-recv", "backward-recv", "forward-send", "backward-send"),
    *("forward-send-backward-recv", "backward-send-forward-recv", "all-grads-sync", "params-all-gather"),
)


def join(configuration: Configuration, **rendezvous: Any) -> list[ranks.Seat]:
    """Meet the other ranks, and agree on the map. `rendezvous`: store, rank, world_size where torchrun's are not meant.

    Raises:
        Refused: the machines that came up are not those of the configuration, or a group sits wrongly on them.
    """
    on_gpu = not cpu.without_gpu()
    if configuration.deterministic:  # libraries read it when they start, before Megatron's parser would set it
        for name, value in DETERMINISM_ENV_VAR_DEFAULTS.items():
            os.environ.setdefault(name, value)
    timeout = datetime.timedelta(seconds=configuration.timeout_s)
    local = int(os.environ["LOCAL_RANK"])
    if on_gpu:
        torch.cuda.set_device(local)
    dist.init_process_group("nccl" if on_gpu else "gloo", timeout=timeout, **rendezvous)
    gpu = f"{local} {torch.cuda.get_device_properties(local).uuid}" if on_gpu else str(local)
    mine = (os.environ.get("SLURMD_NODENAME") or socket.gethostname(), gpu)
    all_: list[Any] = [None] * dist.get_world_size()
    dist.all_gather_object(all_, mine)
    chart = [
        ranks.seat(rank, configuration.machines, configuration.parallel, server, gpu)
        for rank, (server, gpu) in enumerate(all_)
    ]
    found = [*ranks.missing(chart, configuration.machines), *ranks.faults(chart)]
    if found:
        raise Refused(found)
    return chart


def divide(configuration: Configuration, chart: list[ranks.Seat]) -> None:
    """Make Megatron's groups, and hold them against the map.

    Raises:
        Refused: Megatron has placed this rank elsewhere than the map.
    """
    parallel = configuration.parallel
    order = "tp-cp-ep-dp-pp" if parallel.order == "tensor-data-pipeline" else "tp-cp-ep-pp-dp"
    minutes = max(1, configuration.timeout_s // 60)
    parallel_state.initialize_model_parallel(
        parallel.tensor, parallel.pipeline, order=order, distributed_timeout_minutes=minutes
    )
    mine = chart[dist.get_rank()]
    places = {
        "tensor rank": (mine.tensor_rank, parallel_state.get_tensor_model_parallel_rank()),
        "stage": (mine.stage, parallel_state.get_pipeline_model_parallel_rank()),
        "replica": (mine.replica, parallel_state.get_data_parallel_rank()),
    }
    found = [
        Fault(f"rank {mine.rank}", f"{name} is {ours} in the map, Megatron has {theirs}")
        for name, (ours, theirs) in places.items()
        if ours != theirs
    ]
    if found:
        raise Refused(found)


class Trainer:
    """One rank of a run."""

    def __init__(self, configuration: Configuration, *, started: float | None = None, **rendezvous: Any) -> None:
        self.configuration = configuration
        self.started = time.time() if started is None else started
        self.on_gpu = not cpu.without_gpu()
        self.chart = join(configuration, **rendezvous)
        self.rank = dist.get_rank()
        self.seat = self.chart[self.rank]
        self.run = Path(configuration.paths.run)
        self.checkpoints = self.run / "checkpoints"
        if self.rank == 0:
            write_json(self.run / "map.json", ranks.document(self.chart))
            write_json(self.run / "configuration.json", configuration.document())
            print(ranks.table(self.chart), flush=True)
        self.manifest = self._verified()
        self.arguments: Namespace = flags.parsed(
            configuration, "gpu" if self.on_gpu else "cpu", rank=self.rank, world=dist.get_world_size()
        )
        stopping.listen()  # Megatron's parser puts a handler of its own there
        divide(configuration, self.chart)
        self.reseed()
        self.packed = self.on_gpu and configuration.batch.documents == "isolated"
        self.rows = rows.dataset(configuration, self.manifest, packed=self.on_gpu)
        self.assembly = model.assemble(self.arguments)
        layers, wanted = len(self.assembly.module.decoder.layers), self._layout()["stages"][self.seat.stage]
        if layers != wanted:
            raise Failed(f"stage {self.seat.stage} has {layers} layers, the configuration gives it {wanted}")
        self.assembly.parallel.train()
        self.step_number = 0
        self.consumed = 0
        self.resumption = Resumption(1, 0, 0, 0)
        self.deadline = stopping.Deadline(configuration.stop.after_s, configuration.stop.margin_s)
        self._reader: Iterator[Any] | None = None
        self.tell: Callable[[str], None] = _unheard
        self._schedule: Callable[..., Any] = get_forward_backward_func()
        self._timers = Timers(2, "max")

    def reseed(self) -> None:
        """The generators as at the start; stages differ, tensor ranks differ where Megatron's tracker says so."""
        seed = self.configuration.seed + 100 * self.seat.stage
        import numpy as np

        random.seed(seed)
        np.random.seed(seed)  # noqa: NPY002 - Megatron draws from the global one
        torch.manual_seed(seed)
        model_parallel_cuda_manual_seed(seed)

    def _verified(self) -> corpus.Manifest:
        """One rank of each server looks at the data; all refuse together."""
        said: list[Any] = [None] * dist.get_world_size()
        mine: list[Fault] = []
        given = None
        try:
            first = os.environ["LOCAL_RANK"] == "0"
            directory = Path(self.configuration.paths.data)
            given = corpus.verified(self.configuration) if first else corpus.manifest(directory)
        except Refused as refused:
            mine = list(refused.faults)
        dist.all_gather_object(said, (mine, given.identity if given else None))
        found = [fault for faults, _ in said for fault in faults]
        if found:
            raise Refused(dict.fromkeys(found))
        if len({name for _, name in said}) > 1:
            raise Refused([Fault("manifest.json", "servers see different manifests", "mount the same data everywhere")])
        if given is None:
            raise Failed("no manifest was read")
        return given

    # --- state ---------------------------------------------------------------------------------

    def digests(self) -> state.Digests:
        """This rank's state, bit by bit; see state.py."""
        self.settle()
        a = self.assembly
        optimizer: dict[str, str] = {}
        steps: dict[str, str] = {}
        schedule = {"steps": str(a.scheduler.num_steps)}
        for number, each in enumerate(getattr(a.optimizer, "chained_optimizers", [a.optimizer])):
            for group_number, group in enumerate(each.optimizer.param_groups):
                where = f"{number}.{group_number}"
                steps[where] = str(int(group.get("step", -1)))
                schedule[f"{where} rate"] = repr(group["lr"])
                schedule[f"{where} weight decay"] = repr(group["weight_decay"])
                for index, parameter in enumerate(group["params"]):
                    optimizer[f"{where}.{index} master"] = state.tensor_digest(parameter)
                    for name, value in sorted(each.optimizer.state.get(parameter, {}).items()):
                        optimizer[f"{where}.{index} {name}"] = state.tensor_digest(value)
        return {
            "parameters": {n: state.tensor_digest(p) for n, p in a.module.named_parameters()},
            "optimizer": optimizer,
            "optimizer step": steps,
            "schedule": schedule,
            "generators": state.generator_digests(state.generators()),
            "data position": {"step": str(self.step_number), "consumed": str(self.consumed)},
        }

    def settle(self) -> None:
        """Overlapped gathers of parameters leave them stale until the next forward: gather now."""
        if self.arguments.overlap_param_gather:
            self.assembly.parallel.disable_forward_pre_hook()
            self.assembly.parallel.enable_forward_pre_hook()

    def _tree(self, *, loading: bool) -> tuple[dict[str, Any], dict[str, Any]]:
        metadata = {
            "distrib_optim_sharding_type": "fully_reshardable"
            if self.configuration.checkpoint.reshardable
            else "dp_reshardable",
            "singleton_local_shards": False,
            "chained_optim_avoid_prefix": True,
        }
        given = {**metadata, "dp_cp_group": parallel_state.get_data_parallel_group(with_context_parallel=True)}
        if self.configuration.checkpoint.reshardable:
            given["distrib_optim_fully_reshardable_mem_efficient"] = False
        module = self.assembly.module.sharded_state_dict(metadata=given)
        parallel = self.configuration.parallel
        sizes = (parallel.pipeline, parallel.tensor, shape.replicas(self.configuration))
        at = (self.seat.stage, self.seat.tensor_rank, self.seat.replica)
        return {
            "model": module,
            "optimizer": self.assembly.optimizer.sharded_state_dict(module, is_loading=loading, metadata=given),
            "scheduler": self.assembly.scheduler.state_dict(),
            "position": {"step": self.step_number, "consumed": self.consumed},
            "generators": ShardedObject("generators", state.generators(), sizes, at, replica_id=0),
        }, metadata

    def save(self) -> checkpoints.Checkpoint | None:
        """Write a checkpoint; complete when this returns. Rank 0 returns it."""
        began = time.time()
        self.tell(f"save of step {self.step_number}")
        self.settle()
        path = checkpoints.directory(self.checkpoints, self.step_number)
        self._on_first(lambda: checkpoints.begin(self.checkpoints, self.step_number))
        tree, metadata = self._tree(loading=False)
        if self.arguments.overlap_param_gather:
            self.assembly.parallel.disable_forward_pre_hook()
        dist_checkpointing.save(tree, str(path), content_metadata=metadata)
        if self.arguments.overlap_param_gather:
            self.assembly.parallel.enable_forward_pre_hook()
        dist.barrier()
        done = self._on_first(lambda: checkpoints.finish(path, self._record(began)))
        self._on_first(lambda: checkpoints.retain(self.checkpoints, self.configuration.checkpoint.keep))
        self.deadline.save_s = max(self.deadline.save_s, time.time() - began)
        return done

    def _record(self, began: float) -> dict[str, Any]:
        return {
            "schema": 1,
            "step": self.step_number,
            "consumed": self.consumed,
            "configuration": self.configuration.identity,
            "order": rows.order(self.configuration, self.manifest),
            "layout": self._layout(),
            "manifest": self.manifest.identity,
            "attempt": self.resumption.attempt,
            "written_at": datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds"),
            "seconds": round(time.time() - began, 3),
        }

    def _layout(self) -> dict[str, Any]:
        """What a checkpoint can be read into."""
        parallel = self.configuration.parallel
        return {
            "tensor": parallel.tensor,
            "stages": list(shape.stages(self.configuration.model, parallel)),
            "replicas": shape.replicas(self.configuration),
            "order": parallel.order,
        }

    def _on_first(self, work: Callable[[], Any]) -> Any:
        """Rank 0 does it, all wait; all fail together if it fails."""
        done, said = None, [""]
        if self.rank == 0:
            try:
                done = work()
            except Exception as fault:  # noqa: BLE001 - told to every rank, raised below
                said = [f"{type(fault).__name__}: {fault}"]
        dist.broadcast_object_list(said, src=0)
        if said[0]:
            raise Failed(f"rank 0: {said[0]}")
        return done

    def resume(self) -> bool:
        """Go on from the latest complete checkpoint, if there is one.

        Raises:
            Refused: it belongs to another order of samples, or to another layout.
        """
        found: list[Any] = [None, None]
        if self.rank == 0:
            try:
                latest = checkpoints.latest(self.checkpoints)
                found = [None, (str(latest.path), dict(latest.record))] if latest else [None, None]
            except Refused as refused:
                found = [refused.faults, None]
        dist.broadcast_object_list(found, src=0)
        if found[0]:
            raise Refused(found[0])
        if found[1]:
            path, record = found[1]
            if record["order"] != rows.order(self.configuration, self.manifest):
                said = "was made with other data, seed, sequence length or steps: its data position means nothing here"
                raise Refused([Fault(path, said, "another paths.run, or the configuration that made it")])
            if record["layout"] != self._layout():
                said = f"was made in the layout {record['layout']}, this run has {self._layout()}"
                raise Refused([Fault(path, said, "resume in the layout that saved it")])
            self.load(path)
        if self.writes_log:
            self.resumption = resumption(self.run / "steps.jsonl", self.step_number, self.consumed)
        shared = [self.resumption]
        dist.broadcast_object_list(shared, src=self._log_rank)
        self.resumption = shared[0]
        return found[1] is not None

    @torch.no_grad()  # with FP32 parameters the distributed optimizer copies into views of them
    def load(self, path: str) -> None:
        """Restore every part from a checkpoint."""
        tree, _ = self._tree(loading=True)
        kept = dist_checkpointing.load(tree, path, strict="raise_all")
        self.assembly.module.load_state_dict(kept["model"])
        self.assembly.optimizer.load_state_dict(kept["optimizer"])
        self.restore(kept)

    def restore(self, kept: dict[str, Any]) -> None:
        """The parts that are no tensors."""
        self.assembly.scheduler.load_state_dict(kept["scheduler"])
        self.step_number = int(kept["position"]["step"])
        self.consumed = int(kept["position"]["consumed"])
        self._reader = None
        state.restore_generators(kept["generators"])

    # --- steps ---------------------------------------------------------------------------------

    def step(self, batches: Iterator[Any] | None = None) -> dict[str, Any]:
        """One step: forward and backward of every micro-batch, reduction, update. What the log says of it."""
        a, c = self.assembly, self.configuration
        began = time.time()
        self.tell(f"step {self.step_number + 1}")
        measured = (self.step_number + 1) % c.log.waiting_every == 0
        a.config.timers = self._timers if measured else None
        if self.on_gpu:
            torch.cuda.reset_peak_memory_stats()
        a.parallel.zero_grad_buffer()
        a.optimizer.zero_grad()
        if batches is None:
            if self._reader is None:
                self._reader = rows.reader(c, self.rows, self.seat.replica, self.consumed)
            batches = self._reader
        self._counted: list[torch.Tensor] = []
        length, width = c.batch.sequence, c.batch.micro
        if self.packed:
            length, width = length * width, 1
        sums = self._schedule(
            forward_step_func=self._forward,
            data_iterator=batches,
            model=[a.parallel],
            num_microbatches=shape.micro_batches(c),
            seq_length=length,
            micro_batch_size=width,
            forward_only=False,
        )
        updated, norm, _ = a.optimizer.step()
        if not updated:
            raise Failed(f"step {self.step_number + 1}: the optimizer refused the gradients (not finite)")
        rate = a.optimizer.param_groups[0]["lr"]
        a.scheduler.step(increment=c.batch.global_)
        first = self.consumed
        self.step_number += 1
        self.consumed += c.batch.global_
        waited = self._waited() if measured else None
        stages = self._per_stage(waited)
        line = self._losses(sums)
        seconds = time.time() - began
        self.deadline.step_s = max(self.deadline.step_s, seconds)
        if not self.writes_log:
            return {"step": self.step_number}
        return {
            "step": self.step_number,
            "attempt": self.resumption.attempt,
            **line,
            "samples": [first, self.consumed - 1],
            "seconds": round(seconds, 6),
            "tokens_per_s": round(line["tokens"] / seconds, 1),
            "tokens_per_s_over": "this step, all replicas",
            "gradient_norm": float(norm),
            "rate": rate,
            "peak_bytes": stages[0],
            "peak_of": "allocated on the GPU" if self.on_gpu else "resident in the process since its start",
            "waited_s": stages[1],
            "time": round(time.time(), 3),
        }

    def _forward(self, batches: Iterator[Any], module: Any) -> tuple[Any, Callable[..., Any]]:
        batch = next(batches)
        tokens = batch["tokens"].numel()
        padding = int(batch.pop("padding").sum())
        batch = {n: t.cuda(non_blocking=True) if torch.is_tensor(t) else t for n, t in batch.items()}
        packing = None
        if "cu_seqlens" in batch:
            batch = flatten_batch_for_packed_sequences(batch)
            ends = batch["cu_seqlens"].reshape(-1)
            longest = int(batch["max_seqlen"].max())
            packing = PackedSeqParams(
                qkv_format="thd",
                cu_seqlens_q=ends,
                cu_seqlens_kv=ends,
                max_seqlen_q=longest,
                max_seqlen_kv=longest,
            )
        mask = batch["loss_mask"]
        output = module(
            batch["tokens"],
            batch["position_ids"],
            batch.get("attention_mask"),
            labels=batch["labels"],
            packed_seq_params=packing,
        )
        return output, lambda losses: weighted(losses, mask, tokens - padding)

    @property
    def _log_rank(self) -> int:
        """The rank that knows the loss: the first of the last stage."""
        last = self.configuration.parallel.pipeline - 1
        return next(s.rank for s in self.chart if s.stage == last and s.tensor_rank == 0 and s.replica == 0)

    @property
    def writes_log(self) -> bool:
        return self.rank == self._log_rank

    def _losses(self, sums: list[Any]) -> dict[str, Any]:
        """Loss and tokens of the step over all replicas; on ranks of the last stage."""
        if not parallel_state.is_pipeline_last_stage():
            return {}
        total = torch.stack([each["sums"] for each in sums]).sum(0)
        dist.all_reduce(total, group=parallel_state.get_data_parallel_group())
        loss, bearing, tokens = (float(v) for v in total)
        return {"loss": loss / max(bearing, 1), "tokens": int(tokens), "loss_tokens": int(bearing)}

    def _per_stage(self, waited: dict[str, float] | None) -> tuple[list[int], list[float] | None]:
        """Of each stage: its fullest rank's bytes, its longest wait in seconds (only where it was measured)."""
        peak = torch.cuda.max_memory_allocated() if self.on_gpu else resident_bytes()
        stages = self.configuration.parallel.pipeline
        table = torch.zeros(stages, 2, dtype=torch.float64, device=torch.cuda.current_device())
        table[self.seat.stage, 0] = peak
        table[self.seat.stage, 1] = sum(waited.values()) if waited else 0.0
        dist.all_reduce(table, op=dist.ReduceOp.MAX)
        values = table.tolist()
        return [int(v[0]) for v in values], [round(v[1], 6) for v in values] if waited is not None else None

    def _waited(self) -> dict[str, float]:
        """Seconds in which this rank waited for neighbours, for the reduction and for the gather, in this step."""
        found = {}
        timers = self._timers._timers  # noqa: SLF001 - Megatron has no public way to ask one rank for its own times
        for name, timer in timers.items():
            seconds = timer.elapsed(reset=True)
            if name in WAITS:
                found[name] = seconds
        return found

    # --- the run -------------------------------------------------------------------------------

    def train(self, until: int | None = None, *, say: Callable[[dict[str, Any]], None] | None = None) -> str:
        """Step until the last step, or until somebody asks for an end. Returns why it ended."""
        last = self.configuration.steps if until is None else until
        book = Book(self, say)
        saved = self.step_number
        reason = ""
        try:
            with self._profiler() as profiler:
                while self.step_number < last and not (reason := self._agreed()):
                    book.write(self.step())
                    if profiler:
                        profiler.step()
                    if self.step_number % self.configuration.checkpoint.every == 0:
                        self.save()
                        saved = self.step_number
            if saved != self.step_number:
                self.save()
        finally:
            book.close()
        return reason or "finished"

    def _agreed(self) -> str:
        """Why to end before the next step, if any rank has a reason; the same text on every rank."""
        mine = stopping.asked() or ("time limit" if self.deadline.near() else "")
        flag = torch.zeros(1, dtype=torch.int32, device=torch.cuda.current_device())
        flag[0] = 1 if mine else 0
        dist.all_reduce(flag, op=dist.ReduceOp.MAX)
        if not int(flag[0]):
            return ""
        said: list[Any] = [None] * dist.get_world_size()
        dist.all_gather_object(said, mine)
        rank = next(r for r, text in enumerate(said) if text)
        return f"{said[rank]} on rank {rank}"

    def _profiler(self) -> Any:
        """The profiler's window, on the ranks that the configuration names; a trace below RUN/profile."""
        import contextlib

        window = self.configuration.profile
        if window is None or self.rank not in window.ranks or self.step_number >= window.last:
            return contextlib.nullcontext()
        wait = max(0, window.first - 1 - self.step_number)
        activities = [torch.profiler.ProfilerActivity.CPU]
        if self.on_gpu:
            activities.append(torch.profiler.ProfilerActivity.CUDA)
        (self.run / "profile").mkdir(parents=True, exist_ok=True)

        def write(profile: Any) -> None:
            profile.export_chrome_trace(str(self.run / "profile" / f"rank-{self.rank:05d}.json"))

        active = window.last - max(window.first - 1, self.step_number)
        schedule = torch.profiler.schedule(wait=wait, warmup=0, active=active, repeat=1)
        return torch.profiler.profile(activities=activities, schedule=schedule, on_trace_ready=write)


class Book:
    """Where the steps of a run are written down: the step log, the log of the job, curves; on the rank that knows."""

    def __init__(self, trainer: Trainer, say: Callable[[dict[str, Any]], None] | None) -> None:
        self.trainer, self.say = trainer, say
        writes = trainer.writes_log
        self.log = StepLog(trainer.run / "steps.jsonl") if writes else None
        self.curves = self._curves() if writes and trainer.configuration.log.tensorboard else None
        self.fresh = True

    def _curves(self) -> Any:
        try:
            from torch.utils.tensorboard import SummaryWriter
        except ImportError as fault:
            raise Failed("log.tensorboard is set, and the tensorboard package is not installed") from fault
        return SummaryWriter(str(self.trainer.run / "tensorboard"))

    def write(self, line: dict[str, Any]) -> None:
        """One step; the first of an attempt also says how it came to be where it is."""
        if self.log is None:
            return
        if self.fresh:
            self.fresh = False
            resumed = self.trainer.resumption
            line["since_start_s"] = round(time.time() - self.trainer.started, 3)
            line["resumed"] = {
                "from_step": resumed.from_step,
                "repeated_samples": resumed.repeated,
                "skipped_samples": resumed.skipped,
            }
        self.log.append(line)
        if self.say:
            self.say(line)
        if self.curves:
            for name in ("loss", "gradient_norm", "rate", "tokens_per_s"):
                self.curves.add_scalar(name, line[name], line["step"])

    def close(self) -> None:
        if self.log:
            self.log.close()
        if self.curves:
            self.curves.close()


def weighted(
    losses: torch.Tensor, mask: torch.Tensor, tokens: int
) -> tuple[torch.Tensor, torch.Tensor, dict[str, Any]]:
    """The loss of a micro-batch as a sum over its loss-bearing tokens, and their number.

    Megatron divides once, by the number in the whole batch. A mean of means would weigh short documents more.
    """
    total = (losses.float().reshape(mask.shape) * mask).sum()
    bearing = mask.sum().to(torch.int)
    kept = torch.stack([total.detach().double(), bearing.double(), torch.full_like(total, tokens).double()])
    return total, bearing, {"sums": kept}


def _unheard(_place: str) -> None:
    pass


def resident_bytes() -> int:
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024


def leave() -> None:
    """Undo `join` and `divide`, so that a process can do them again."""
    parallel_state.destroy_model_parallel()
    if dist.is_initialized():
        dist.destroy_process_group()
