"""The profile of an acceptance: how many devices, which sizes, every tolerance and every time limit.

Its identity is hashed before anything runs and stands in the record: a tolerance that is changed afterwards is another
profile.
"""

from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from bedplate_train.configuration import Count, Positive, Tokenizer
from bedplate_train.faults import Fault, Refused
from bedplate_train.text import dotted, identity, read_yaml

# A vocabulary that needs no filling up with one tensor rank or with two: the same model in every layout.
TOY = Tokenizer(name="toy", version="1", vocabulary=256, end=0, padding=1)


class _Section(BaseModel):
    model_config = ConfigDict(strict=True, frozen=True, extra="forbid")


class Devices(_Section):
    """`stand-in`: processes on a CPU take the place of GPUs; the record says so."""

    kind: Literal["gpu", "stand-in"]
    count: Annotated[int, Field(ge=8, le=8)]  # the layouts below are of eight ranks


class Compute(_Section):
    """A product of small whole numbers is exact in FP32, also by tensor cores: its digest is known."""

    matrix: Annotated[int, Field(ge=16, le=16384)]
    digest: Annotated[str, Field(pattern=r"^[0-9a-f]{64}$")]
    bf16: Positive  # relative to the largest value
    attention: Positive  # largest difference from a softmax written out in FP32
    first_loss: Positive  # distance of the first loss from that of a guess, ln(vocabulary)


class Exchange(_Section):
    """Bytes of each larger sum, ascending; bus bandwidth in GB/s that the largest must reach."""

    sizes: tuple[Count, ...]
    floor_gb_per_s: Annotated[float, Field(ge=0)]
    of_reference: Annotated[float, Field(ge=0, le=1)]  # share of the reference machine's speed that must be reached


class Resume(_Section):
    steps: Count
    at: Count


class Learning(_Section):
    """Relative to the largest value of a tensor. A control is a check that must miss by at least `control`."""

    fp32: Positive
    bf16: Positive
    accumulation: Positive
    isolation: Annotated[float, Field(ge=0)]
    packing: Positive
    control: Positive
    end_steps: Count
    end_gain: Positive  # by how much the loss of the end marker must fall, in nats


class Limits(_Section):
    """Seconds for each question; a rank that is not back by then is ended and named."""

    devices: Positive
    machine: Positive
    resume: Positive
    learning: Positive


class Paths(_Section):
    data: Annotated[str, Field(pattern="^/")]
    run: Annotated[str, Field(pattern="^/")]
    data_is_read_only: bool  # a write there must fail


class Profile(_Section):
    name: str
    devices: Devices
    compute: Compute
    exchange: Exchange
    resume: Resume
    learning: Learning
    limits: Limits
    paths: Paths

    def document(self) -> dict[str, Any]:
        return self.model_dump(mode="json")

    @property
    def identity(self) -> str:
        return identity(self.document())


def open_profile(path: Path) -> Profile:
    """Read a profile.

    Raises:
        Refused: every fault that was found.
    """
    try:
        data, lines = read_yaml(path.read_text(encoding="utf-8"), str(path))
    except (OSError, UnicodeDecodeError) as fault:
        raise Refused([Fault(str(path), f"cannot be read: {fault}")]) from fault
    import json

    try:
        found = Profile.model_validate_json(json.dumps(data))
    except ValidationError as fault:
        places = [(tuple(e["loc"]), e["msg"]) for e in fault.errors()]
        raise Refused([Fault(f"{path}:{lines.get(p, 1)}", f"{dotted(p)}: {m}") for p, m in places]) from fault
    if found.resume.at >= found.resume.steps:
        said = f"at is {found.resume.at}, the run has {found.resume.steps} steps"
        raise Refused([Fault(f"{path}:{lines.get(('resume', 'at'), 1)}", f"resume: {said}")])
    return found


def toy_configuration(profile: Profile, run: Path, *, steps: int, every: int) -> dict[str, Any]:
    """The small model, in the layout that has every kind of parallelism; a configuration as YAML would give it."""
    return {
        "name": "acceptance",
        "steps": steps,
        "timeout_s": 600,
        "deterministic": True,
        "machines": {"servers": 1, "gpus_per_server": 8, "gpu_memory_gb": 180, "architecture": "10.0"},
        "model": {"layers": 4, "hidden": 64, "ffn": 128, "heads": 8, "groups": 4, "head_size": 8, "dropout": 0.1},
        "parallel": {"tensor": 2, "pipeline": 2, "sequence": True},
        "batch": {"sequence": 32, "micro": 1, "global": 8},
        "optimizer": {
            "rate": 3.0e-3,
            "rate_end": 3.0e-4,
            "schedule": "cosine",
            "warmup": max(1, steps // 10),
            "bucket": 20000,
        },
        "data": {"tokenizer": TOY.model_dump(), "sets": {"counting": 3.0, "repeating": 1.0}, "workers": 0},
        "paths": {"data": profile.paths.data, "run": str(run)},
        "checkpoint": {"every": every},
        "stop": {"margin_s": 1.0},
    }
