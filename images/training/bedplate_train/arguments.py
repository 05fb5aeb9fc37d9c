"""Megatron's arguments: what a configuration says, in the flags that Megatron's own parser reads.

The flags are the run: the training loop takes its configuration objects from what the parser made of them, and so
does Megatron's own pretrain program. The parser accepts some flags and quietly turns them off; so what it derived is
compared with what the configuration means, value by value.
"""

import contextlib
import io
import os
import sys
from argparse import Namespace
from collections.abc import Iterator
from typing import Any, Literal

from bedplate_train import shape
from bedplate_train.configuration import Configuration
from bedplate_train.faults import Fault, Refused

type Device = Literal["gpu", "cpu"]

# What a CPU has no kernels for. A run there proves the program and not these.
CPU_FLAGS = [
    "--transformer-impl",
    "local",
    "--distributed-backend",
    "gloo",
    "--use-cpu-initialization",
    "--no-gradient-accumulation-fusion",
    "--no-masked-softmax-fusion",
    "--no-bias-dropout-fusion",
    "--no-bias-swiglu-fusion",
    "--no-rope-fusion",
    "--no-persist-layer-norm",
]


def flags(configuration: Configuration, device: Device) -> list[str]:
    """The argument list, without the program's name."""
    c = configuration
    words: list[Any] = [
        *("--tensor-model-parallel-size", c.parallel.tensor),
        *("--pipeline-model-parallel-size", c.parallel.pipeline),
        *("--context-parallel-size", c.parallel.context),
        *("--num-layers", c.model.layers),
        *("--hidden-size", c.model.hidden),
        *("--ffn-hidden-size", c.model.ffn),
        *("--num-attention-heads", c.model.heads),
        *("--kv-channels", c.model.head_size),
        "--group-query-attention",
        *("--num-query-groups", c.model.groups),
        *("--seq-length", c.batch.sequence),
        *("--max-position-embeddings", c.batch.sequence),
        *("--position-embedding-type", "rope"),
        *("--rotary-base", c.model.rotary_base),
        *("--normalization", "RMSNorm"),
        "--swiglu",
        "--disable-bias-linear",
        "--untie-embeddings-and-output-weights",
        *("--attention-dropout", c.model.dropout),
        *("--hidden-dropout", c.model.dropout),
        *("--init-method-std", c.model.initial_std),
        *("--seed", c.seed),
        *("--micro-batch-size", c.batch.micro),
        *("--global-batch-size", c.batch.global_),
        *("--train-iters", c.steps),
        "--calculate-per-token-loss",
        *("--lr", c.optimizer.rate),
        *("--min-lr", c.optimizer.rate_end),
        *("--lr-warmup-iters", c.optimizer.warmup),
        *("--lr-decay-iters", c.steps),
        *("--weight-decay", c.optimizer.weight_decay),
        *("--adam-beta1", c.optimizer.beta1),
        *("--adam-beta2", c.optimizer.beta2),
        *("--adam-eps", c.optimizer.epsilon),
        *("--clip-grad", c.optimizer.clip),
        *("--tokenizer-type", "NullTokenizer"),
        *("--vocab-size", c.data.tokenizer.vocabulary),
        *("--split", "100,0,0"),
        *("--num-workers", c.data.workers),
        "--eod-mask-loss",
        *("--eval-iters", 0),
        *("--eval-interval", c.steps + 1),
        *("--log-interval", 1),
        *("--ckpt-format", "torch_dist"),
        *("--save", f"{c.paths.run}/checkpoints"),
        *("--load", f"{c.paths.run}/checkpoints"),
        *("--save-interval", c.checkpoint.every),
        "--ckpt-fully-parallel-load",
        "--exit-signal-handler",
        *("--distributed-timeout-minutes", max(1, c.timeout_s // 60)),
    ]
    if c.optimizer.schedule == "wsd":
        words += [
            "--lr-decay-style",
            "WSD",
            "--lr-wsd-decay-style",
            "cosine",
            "--lr-wsd-decay-iters",
            c.optimizer.decay,
        ]
    else:
        words += ["--lr-decay-style", "cosine"]
    switches = {
        "--sequence-parallel": c.parallel.sequence,
        "--use-tp-pp-dp-mapping": c.parallel.order == "tensor-pipeline-data",
        "--bf16": c.precision == "bf16",
        "--deterministic-mode": c.deterministic,
        "--accumulate-allreduce-grads-in-fp32": c.precision == "fp32",  # --bf16 turns it on by itself
        "--use-distributed-optimizer": c.optimizer.distributed,
        "--overlap-grad-reduce": c.optimizer.overlap_reduce,
        "--overlap-param-gather": c.optimizer.overlap_gather,
        "--reset-position-ids": c.batch.documents == "isolated",
        "--reset-attention-mask": c.batch.documents == "isolated" and device == "cpu",
        # Fused attention takes the ends of documents; a mask of 8192 x 8192 for each row is nothing to send.
        "--dataloader-inter-document-masking": c.batch.documents == "isolated" and device == "gpu",
        "--dist-ckpt-optim-fully-reshardable": c.checkpoint.reshardable,
    }
    words += [word for word, wanted in switches.items() if wanted]
    if c.parallel.stages is not None:
        words += ["--pipeline-model-parallel-layout", layout(c.parallel.stages)]
    if c.parallel.recompute == "selective":
        words += ["--recompute-granularity", "selective"]
    elif c.parallel.recompute == "full":
        words += ["--recompute-granularity", "full", "--recompute-method", "uniform", "--recompute-num-layers", 1]
    if c.optimizer.bucket is not None:
        words += ["--ddp-bucket-size", c.optimizer.bucket]
    if device == "cpu":
        words += CPU_FLAGS
    else:
        words += ["--no-create-attention-mask-in-dataloader"]  # fused attention has its causal mask built in
        words += ["--transformer-impl", "transformer_engine", "--distributed-backend", "nccl"]
    return [str(word) for word in words]


def layout(stages: tuple[int, ...]) -> str:
    """Megatron's text for the layers of each stage: `Ettt|ttt|ttL`, E the embedding and L the loss."""
    parts = ["t" * layers for layers in stages]
    parts[0] = "E" + parts[0]
    parts[-1] += "L"
    return "|".join(parts)


def derived(configuration: Configuration) -> dict[str, Any]:
    """What the parser must make of the flags: its name of a value, and the value."""
    c = configuration
    return {
        "world_size": shape.world(c),
        "data_parallel_size": shape.replicas(c),
        "tensor_model_parallel_size": c.parallel.tensor,
        "pipeline_model_parallel_size": c.parallel.pipeline,
        "context_parallel_size": c.parallel.context,
        "virtual_pipeline_model_parallel_size": None,  # 1F1B without interleaving
        "sequence_parallel": c.parallel.sequence,
        "use_tp_pp_dp_mapping": c.parallel.order == "tensor-pipeline-data",
        "use_distributed_optimizer": c.optimizer.distributed,
        "overlap_grad_reduce": c.optimizer.overlap_reduce,
        "overlap_param_gather": c.optimizer.overlap_gather,
        "accumulate_allreduce_grads_in_fp32": True,
        "calculate_per_token_loss": True,
        "bf16": c.precision == "bf16",
        "deterministic_mode": c.deterministic,
        "num_layers": c.model.layers,
        "seq_length": c.batch.sequence,
        "global_batch_size": c.batch.global_,
        "micro_batch_size": c.batch.micro,
        "padded_vocab_size": shape.padded_vocabulary(c.data.tokenizer, c.parallel.tensor),
        "lr_decay_style": "WSD" if c.optimizer.schedule == "wsd" else "cosine",
        "lr_wsd_decay_iters": c.optimizer.decay,
        "recompute_granularity": None if c.parallel.recompute == "none" else c.parallel.recompute,
        "ckpt_format": "torch_dist",
        "dist_ckpt_optim_fully_reshardable": c.checkpoint.reshardable,
        "exit_signal_handler": True,
    }


def parsed(configuration: Configuration, device: Device, *, rank: int = 0, world: int | None = None) -> Namespace:
    """What Megatron's real parser makes of the flags; Megatron's globals are those of the last call.

    Raises:
        Refused: the parser refuses the flags, or made something else of them than they mean.
    """
    words = flags(configuration, device)
    size = shape.world(configuration) if world is None else world
    said = io.StringIO()
    with _command_line(words, rank, size):
        # Seconds, and it needs torch.
        from megatron.core.num_microbatches_calculator import (
            get_num_microbatches,
            unset_num_microbatches_calculator,
        )
        from megatron.training.arguments import parse_and_validate_args
        from megatron.training.global_vars import unset_global_variables

        unset_global_variables()
        unset_num_microbatches_calculator()
        try:
            with contextlib.redirect_stdout(said), contextlib.redirect_stderr(said):
                arguments: Namespace = parse_and_validate_args(args_defaults={})
        except (Exception, SystemExit) as fault:
            reason = str(fault).strip() or type(fault).__name__
            if isinstance(fault, SystemExit):  # argparse prints its reason and exits
                reason = next((line for line in said.getvalue().splitlines() if ": error: " in line), reason)
            raise Refused([Fault("Megatron's parser", reason[:500], "flags: " + " ".join(words))]) from fault
    faults = [
        Fault("Megatron's parser", f"{name} is {getattr(arguments, name, None)!r}, the configuration means {value!r}")
        for name, value in derived(configuration).items()
        if getattr(arguments, name, None) != value
    ]
    found = get_num_microbatches()
    if found != shape.micro_batches(configuration):
        said_of = f"{found} micro-batches a step, the configuration means {shape.micro_batches(configuration)}"
        faults.append(Fault("Megatron's parser", said_of))
    if faults:
        raise Refused(faults)
    return arguments


@contextlib.contextmanager
def _command_line(words: list[str], rank: int, world: int) -> Iterator[None]:
    """The parser reads the command line and three variables of torchrun."""
    before, kept = sys.argv, {name: os.environ.get(name) for name in ("RANK", "WORLD_SIZE", "LOCAL_RANK")}
    sys.argv = ["bedplate-train", *words]
    os.environ.update(RANK=str(rank), WORLD_SIZE=str(world))
    os.environ.setdefault("LOCAL_RANK", "0")
    try:
        yield
    finally:
        sys.argv = before
        for name, value in kept.items():
            if value is None:
                os.environ.pop(name, None)
            else:
                os.environ[name] = value
