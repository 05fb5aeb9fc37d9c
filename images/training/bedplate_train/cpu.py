"""The one file that lets Megatron run without a GPU: "cuda" means the CPU. Where a GPU is, it does nothing.

Megatron Core 0.19.2 names the device in three ways: `device="cuda"` in tensor factories, `torch.cuda.current_device()`,
and comparisons with `tensor.type()`. It also uses CUDA's streams, events, memory figures and random generator. Each is
redirected here, once, without an edit to the package. What a run with this proves: the program, its arguments, the
order of the data, what a checkpoint holds, how a run resumes. What it does not prove: kernels, NCCL, Transformer
Engine, asynchronous saves.
"""

import collections
import contextlib
import functools
import logging
import os
import types
from collections.abc import Callable, Iterator
from typing import Any

import torch

CPU = torch.device("cpu")
UNPROVEN = ("GPU kernels", "NCCL", "Transformer Engine", "asynchronous checkpoints", "BF16 rounding of a GPU")


def without_gpu() -> bool:
    """Is there no GPU to compute on?"""
    return not _cuda_was_available


_cuda_was_available = torch.cuda.is_available()
_enabled = False


def enable() -> bool:
    """Redirect; True where it was needed. Before anything of Megatron is imported; a second call changes nothing."""
    global _enabled  # noqa: PLW0603 - the redirection is of the process
    if not without_gpu():
        return False
    if not _enabled:
        _enabled = True
        os.environ.setdefault("TORCHDYNAMO_DISABLE", "1")  # Megatron's jit_fuser is torch.compile
        _factories()
        _cuda()
        _tensors()
        _collectives()
        _megatron()
    return True


def _is_cuda(device: Any) -> bool:
    if isinstance(device, torch.device):
        return device.type == "cuda"
    return isinstance(device, str) and device.split(":")[0] == "cuda"


def _on_cpu(factory: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(factory)
    def call(*args: Any, **kwargs: Any) -> Any:
        if _is_cuda(kwargs.get("device")):
            kwargs["device"] = CPU
        return factory(*args, **kwargs)

    return call


def _factories() -> None:
    names = "tensor empty zeros ones full arange rand randn randint empty_like zeros_like ones_like full_like"
    for name in names.split():
        setattr(torch, name, _on_cpu(getattr(torch, name)))


class _Stream:
    """A stream that runs in the order of the program, which is what the CPU does."""

    def __init__(self, *_args: Any, **_kwargs: Any) -> None:
        pass

    def wait_stream(self, other: Any) -> None:
        pass

    def wait_event(self, event: Any) -> None:
        pass

    def record_event(self, event: Any = None) -> Any:
        return event or _Event()

    def synchronize(self) -> None:
        pass

    @staticmethod
    def priority_range() -> tuple[int, int]:
        return (0, 0)


class _Event(_Stream):
    def record(self, stream: Any = None) -> None:
        pass

    def wait(self, stream: Any = None) -> None:
        pass

    def query(self) -> bool:
        return True

    def elapsed_time(self, other: Any) -> float:
        return 0.0


def _cuda() -> None:
    cuda: Any = torch.cuda
    current = _Stream()

    @contextlib.contextmanager
    def stream(_stream: Any) -> Iterator[None]:
        yield

    def seed(value: int) -> None:
        torch.default_generator.manual_seed(value)

    def state(device: Any = "cuda") -> torch.Tensor:
        return torch.get_rng_state()

    def set_state(value: torch.Tensor, device: Any = "cuda") -> None:
        torch.set_rng_state(value)

    properties = types.SimpleNamespace(major=10, minor=0)  # a B200's architecture
    cuda.current_device = lambda: CPU
    cuda.device_count = lambda: int(os.environ.get("LOCAL_WORLD_SIZE", "1"))
    cuda.get_device_properties = lambda *_args: properties
    cuda.get_device_capability = lambda *_args: (10, 0)
    for name in ["set_device", "synchronize", "empty_cache", "reset_peak_memory_stats"]:
        setattr(cuda, name, lambda *_args, **_kwargs: None)  # one each: torch keeps a table of its functions
    cuda.memory_stats = lambda *_args, **_kwargs: collections.defaultdict(int)
    for name in [
        "memory_allocated",
        "max_memory_allocated",
        "memory_reserved",
        "max_memory_reserved",
        "device_memory_used",
    ]:
        setattr(cuda, name, lambda *_args, **_kwargs: 0)
    cuda.Stream, cuda.Event = _Stream, _Event
    cuda.current_stream = cuda.default_stream = lambda device=None: current
    cuda.stream = stream
    cuda.manual_seed = cuda.manual_seed_all = seed
    cuda.get_rng_state = cuda.random.get_rng_state = state
    cuda.set_rng_state = cuda.random.set_rng_state = set_state


def _tensors() -> None:
    tensor: Any = torch.Tensor
    module: Any = torch.nn.Module
    tensor_type, tensor_to = tensor.type, tensor.to

    def type_(self: Any, dtype: Any = None, **kwargs: Any) -> Any:
        if dtype is not None:
            return tensor_type(self, dtype, **kwargs)
        return tensor_type(self).replace("torch.", "torch.cuda.", 1)  # Megatron compares it with a CUDA type

    def to(self: Any, *args: Any, **kwargs: Any) -> Any:
        args = tuple(CPU if _is_cuda(a) else a for a in args)
        if _is_cuda(kwargs.get("device")):
            kwargs["device"] = CPU
        return tensor_to(self, *args, **kwargs)

    tensor.type, tensor.to = type_, to
    tensor.cuda = module.cuda = lambda self, *_args, **_kwargs: self


def _collectives() -> None:
    """Megatron's own pretrain program names the device of a process group and of a barrier."""
    dist: Any = torch.distributed

    def without(call: Callable[..., Any], name: str) -> Callable[..., Any]:
        return functools.wraps(call)(lambda *a, **k: call(*a, **{n: v for n, v in k.items() if n != name}))

    dist.init_process_group = without(dist.init_process_group, "device_id")
    dist.barrier = without(dist.barrier, "device_ids")


def _megatron() -> None:
    import megatron.core.optimizer.distrib_optimizer as distributed
    import megatron.core.tensor_parallel.random as generator
    from megatron.core import optimizer
    from megatron.core.transformer import torch_norm

    # The generators of CPU and "cuda" are one here, so a state that is restored must act at once (torch queues it
    # until CUDA starts), and the warning that the CPU's changed means nothing.
    generator._set_cuda_rng_state = lambda state, device=-1, graph_safe=False: torch.set_rng_state(state)  # noqa: SLF001
    logging.getLogger(generator.__name__).addFilter(lambda record: "CPU RNG state" not in record.getMessage())

    def norm(cls: Any, config: Any, hidden_size: int, eps: float = 1e-5, **_kwargs: Any) -> Any:
        kind = torch.nn.RMSNorm if config.normalization == "RMSNorm" else torch.nn.LayerNorm
        made = kind(hidden_size, eps=eps)
        for parameter in made.parameters():  # the mark by which Transformer Engine's norm gets its gradients summed
            parameter.sequence_parallel = config.sequence_parallel
        return made

    torch_norm.WrappedTorchNorm.__new__ = norm  # the original refuses sequence parallelism

    if optimizer.USING_PYTORCH_OPTIMIZER:
        optimizer.Adam, optimizer.USING_PYTORCH_OPTIMIZER = Adam, False
        distributed.HAVE_APEX_OR_TE = distributed.USING_TE_OPTIMIZER = True


def enable_pretrain() -> None:
    """The rest, for Megatron's own pretrain program; after `enable`."""
    if not without_gpu():
        return
    from megatron.training import training

    program: Any = training
    program.initialize_megatron = functools.partial(program.initialize_megatron, allow_no_cuda=True)


class Adam(torch.optim.Optimizer):
    """AdamW that counts steps in the parameter group, as Transformer Engine's FusedAdam does.

    Megatron falls back to torch's AdamW, whose step of each parameter the distributed optimizer does not restore
    (0.19.2): a resumed run has the right loss in its first step and drifts from the second on.
    """

    def __init__(
        self,
        params: Any,
        lr: float = 1e-3,
        betas: tuple[float, float] = (0.9, 0.999),
        eps: float = 1e-8,
        weight_decay: float = 0.0,
        *,
        adam_w_mode: bool = True,
        capturable: bool = False,
    ) -> None:
        if not adam_w_mode or capturable:
            raise ValueError("only AdamW with decoupled weight decay")
        super().__init__(params, {"lr": lr, "betas": betas, "eps": eps, "weight_decay": weight_decay})

    @torch.no_grad()
    def step(self, closure: Any = None, grad_scaler: Any = None) -> None:
        for group in self.param_groups:
            group["step"] = group.get("step", 0) + 1
            (beta1, beta2), rate, count = group["betas"], group["lr"], group["step"]
            for parameter in group["params"]:
                if parameter.grad is None:
                    continue
                state, gradient = self.state[parameter], parameter.grad
                if not state:
                    state["exp_avg"], state["exp_avg_sq"] = torch.zeros_like(parameter), torch.zeros_like(parameter)
                mean, square = state["exp_avg"], state["exp_avg_sq"]
                mean.lerp_(gradient, 1 - beta1)
                square.mul_(beta2).addcmul_(gradient, gradient, value=1 - beta2)
                parameter.mul_(1 - rate * group["weight_decay"])
                size = (square / (1 - beta2**count)).sqrt_().add_(group["eps"])
                parameter.addcdiv_(mean, size, value=-rate / (1 - beta1**count))
