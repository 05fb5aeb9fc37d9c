"""The configuration: one YAML file is the run.

Every value stands once; what follows from others (replicas, micro-batches) is derived, in `shape.py`. All faults of a
file are reported at once: those of single values, then those between values whose sections are right.

    >>> read("batch: {sequence: 8192, micro: 1, global: 1921, documents: isolated}", "x.yml")
    Refused: x.yml:1: model: missing ...
"""

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from bedplate_train.faults import Fault, Refused
from bedplate_train.text import Place, dotted, identity, read_yaml

Count = Annotated[int, Field(ge=1, le=10**15)]
Rate = Annotated[float, Field(ge=0, lt=1)]
Positive = Annotated[float, Field(gt=0)]
Name = Annotated[str, Field(pattern=r"^[A-Za-z0-9][A-Za-z0-9._-]*$", max_length=100)]
PathText = Annotated[str, Field(pattern=r"^/[^\x00\n]*$")]


class Section(BaseModel):
    model_config = ConfigDict(strict=True, frozen=True, extra="forbid", populate_by_name=True)


class Machines(Section):
    """What the run gets: `architecture` is the GPU's compute capability, "10.0" for a B200."""

    servers: Count
    gpus_per_server: Count
    gpu_memory_gb: Count = 180
    architecture: Annotated[str, Field(pattern=r"^[0-9]+\.[0-9]$")] = "10.0"


class Model(Section):
    """A GPT: RMSNorm, SwiGLU, rotary positions, no biases, input and output embeddings apart."""

    layers: Count
    hidden: Count
    ffn: Count
    heads: Count
    groups: Count  # key-value heads
    head_size: Count
    rotary_base: Count = 10_000
    dropout: Rate = 0.0
    initial_std: Positive = 0.02


class Parallel(Section):
    """How the model is cut: `order` says whose ranks are neighbours (see ranks.py)."""

    tensor: Count
    pipeline: Count
    context: Literal[1] = 1  # context parallelism is not offered: it was never run
    sequence: bool = False
    order: Literal["tensor-data-pipeline", "tensor-pipeline-data"] = "tensor-data-pipeline"
    stages: tuple[Count, ...] | None = None  # layers of each stage; without it the stages are equal
    recompute: Literal["none", "selective", "full"] = "none"


class Batch(Section):
    """Sequences a step: `global` over all replicas, `micro` at once; the loss is weighted by token."""

    sequence: Count
    micro: Count
    global_: Count = Field(alias="global")
    documents: Literal["isolated", "joined"] = "isolated"  # may a token attend to an earlier document of its row?


class Optimizer(Section):
    """AdamW; the rate rises over `warmup` steps, then falls: cosine to the end, or WSD in its last `decay` steps."""

    rate: Positive
    rate_end: Annotated[float, Field(ge=0)] = 0.0
    schedule: Literal["cosine", "wsd"]
    warmup: Annotated[int, Field(ge=0)]
    decay: Count | None = None
    weight_decay: Annotated[float, Field(ge=0)] = 0.1
    beta1: Rate = 0.9
    beta2: Rate = 0.95
    epsilon: Positive = 1e-8
    clip: Annotated[float, Field(ge=0)] = 1.0
    distributed: bool = True
    overlap_reduce: bool = True
    overlap_gather: bool = True
    bucket: Count | None = None  # parameters of a gradient bucket; Megatron's choice without it


class Tokenizer(Section):
    """What the data was made with: the manifest must say the same."""

    name: Name
    version: Name
    vocabulary: Count
    end: Annotated[int, Field(ge=0)]  # id of the end marker of a document
    padding: Annotated[int, Field(ge=0)]


class Data(Section):
    """Indexed datasets below `paths.data`, named in its manifest.json; weights of the blend."""

    tokenizer: Tokenizer
    sets: Mapping[Name, Positive]
    verify: Literal["sizes", "checksums"] = "checksums"
    workers: Annotated[int, Field(ge=0, le=64)] = 2  # processes that read ahead, per rank


class Paths(Section):
    """`data` is read and never written; all that the run writes is below `run`, on storage that every server sees."""

    data: PathText
    run: PathText


class Checkpoint(Section):
    """`reshardable`: Megatron's optimizer state without padding, which can be compared on disk; slower."""

    every: Count  # steps
    keep: Count = 2
    reshardable: bool = False


class Stop(Section):
    """When to end with a checkpoint: `after_s` from the launcher's start, or Slurm's end of the job, less a margin."""

    after_s: Positive | None = None
    margin_s: Annotated[float, Field(ge=0)] = 300.0


class Log(Section):
    """`waiting_every`: steps between measurements of waiting; each synchronises the GPU, so not every step."""

    waiting_every: Count = 10
    tensorboard: bool = False


class Window(Section):
    """Steps that the profiler records, first and last, and on which ranks."""

    first: Count
    last: Count
    ranks: tuple[Annotated[int, Field(ge=0)], ...] = (0,)


class Configuration(Section):
    name: Name
    seed: Annotated[int, Field(ge=0, lt=2**31)] = 1234
    steps: Count
    precision: Literal["bf16", "fp32"] = "bf16"
    deterministic: bool = False  # the same bits every time, also of a GPU: slower, and what a compared resume needs
    timeout_s: Count = 1800  # how long a rank waits for others in a collective, before it gives up
    machines: Machines
    model: Model
    parallel: Parallel
    batch: Batch
    optimizer: Optimizer
    data: Data
    paths: Paths
    checkpoint: Checkpoint
    stop: Stop = Stop()
    log: Log = Log()
    profile: Window | None = None

    def document(self) -> dict[str, Any]:
        """Plain data, every default filled in; its identity is that of the run."""
        return self.model_dump(mode="json", by_alias=True)

    @property
    def identity(self) -> str:
        return identity(self.document())


def read(text: str, file: str) -> Configuration:
    """Read a configuration of which nothing is in doubt.

    Raises:
        Refused: every fault that was found.
    """
    data, lines = read_yaml(text, file)
    if not isinstance(data, dict):
        raise Refused([Fault(file, "a configuration is a mapping of name, steps, machines, model, ...")])
    found: dict[str, Any] = {}
    faults = []
    for name, field in Configuration.model_fields.items():
        if name not in data:
            if field.is_required():
                faults.append(_fault(file, lines, (name,), "missing"))
            else:
                found[name] = field.default
            continue
        try:
            found[name] = _section(name, data[name])
        except ValidationError as fault:
            faults += [_fault(file, lines, (name, *e["loc"][1:]), *_said(e)) for e in fault.errors()]
    for key in data:
        if key not in Configuration.model_fields:
            known = ", ".join(Configuration.model_fields)
            faults.append(_fault(file, lines, (str(key),), "unknown key", f"known here: {known}"))
    faults += [_fault(file, lines, place, said, remedy) for place, said, remedy in contradictions(found)]
    if faults:
        raise Refused(sorted(set(faults), key=lambda f: _line(f.place)))
    return Configuration.model_construct(**found)


def open_configuration(path: Path) -> Configuration:
    """Read a configuration file.

    Raises:
        Refused: it cannot be read, or has faults.
    """
    try:
        text = path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as fault:
        raise Refused([Fault(str(path), f"cannot be read: {fault}")]) from fault
    return read(text, str(path))


def _section(name: str, value: Any) -> Any:
    """One member of the configuration, read by itself, so that the faults of all members are found."""
    import json

    field = Configuration.model_fields[name]
    holder = _holder(name, field.annotation, field)
    try:
        text = json.dumps({name: value})
    except (TypeError, ValueError):
        text = json.dumps({name: str(value)})  # a date, a set: no value of a configuration
    return getattr(holder.model_validate_json(text), name)


def _holder(name: str, annotation: Any, field: Any) -> type[BaseModel]:
    from pydantic import create_model

    members: Any = {name: (annotation, field)}
    holder: type[BaseModel] = create_model(f"Only_{name}", __config__=Section.model_config, **members)
    return holder


def _said(error: Any) -> tuple[str, str]:
    match error["type"]:
        case "extra_forbidden":
            return "unknown key", "remove it, or see docs/training.md for the name"
        case "missing":
            return "missing", ""
        case _:
            return f"{str(error['msg'])[:1].lower()}{str(error['msg'])[1:]}, found {error['input']!r}"[:300], ""


def _fault(file: str, lines: Mapping[Place, int], place: Place, found: str, remedy: str = "") -> Fault:
    for length in range(len(place), -1, -1):
        if place[:length] in lines:
            return Fault(f"{file}:{lines[place[:length]]}", f"{dotted(place)}: {found}", remedy)
    return Fault(file, f"{dotted(place)}: {found}", remedy)


def _line(place: str) -> tuple[int, str]:
    number = place.rpartition(":")[2]
    return (int(number) if number.isdigit() else 0, place)


type Contradiction = tuple[Place, str, str]


def contradictions(found: Mapping[str, Any]) -> Iterator[Contradiction]:
    """Values that are right by themselves and not together: place, what was found, what to do.

    A rule whose sections have faults of their own is not asked.
    """
    for needs, rule in RULES:
        if all(name in found for name in needs):
            yield from rule(*(found[name] for name in needs))


def _layout(machines: Machines, parallel: Parallel) -> Iterator[Contradiction]:
    world = machines.servers * machines.gpus_per_server
    size = parallel.tensor * parallel.pipeline
    server = machines.gpus_per_server
    if parallel.tensor > server or server % parallel.tensor:
        found = f"a tensor group of {parallel.tensor} does not fit into a server of {server} GPUs"
        yield ("parallel", "tensor"), found, "tensor parallelism stays on one server's NVLink: choose a divisor of it"
    elif world % size:
        found = f"{world} GPUs are no multiple of tensor {parallel.tensor} x pipeline {parallel.pipeline} = {size}"
        yield ("machines", "servers"), found, "change the number of servers or of stages"
    else:
        from bedplate_train import ranks

        for fault in ranks.faults(ranks.seats(machines, parallel)):
            yield ("parallel", "pipeline"), fault.found, fault.remedy
            break  # the first replica stands for all of them
    if parallel.sequence and parallel.tensor == 1:
        yield (
            ("parallel", "sequence"),
            "sequence parallelism without tensor parallelism",
            "Megatron turns it off silently",
        )


def _stages(model: Model, parallel: Parallel) -> Iterator[Contradiction]:
    if parallel.stages is None:
        if model.layers % parallel.pipeline:
            found = f"{model.layers} layers are no multiple of {parallel.pipeline} stages"
            yield ("model", "layers"), found, "or say the layers of each stage in parallel.stages"
        return
    place = ("parallel", "stages")
    if len(parallel.stages) != parallel.pipeline:
        yield place, f"{len(parallel.stages)} stages, parallel.pipeline says {parallel.pipeline}", "one number a stage"
    if sum(parallel.stages) != model.layers:
        yield place, f"add up to {sum(parallel.stages)} layers, model.layers says {model.layers}", ""


def _divisions(model: Model, parallel: Parallel, batch: Batch) -> Iterator[Contradiction]:
    tensor = parallel.tensor
    for name, value in (("heads", model.heads), ("groups", model.groups), ("ffn", model.ffn), ("hidden", model.hidden)):
        if value % tensor:
            yield ("model", name), f"{value} is no multiple of parallel.tensor {tensor}", ""
    if model.heads % model.groups:
        yield ("model", "groups"), f"{model.heads} heads are no multiple of {model.groups} groups", ""
    if model.head_size % 2:
        yield ("model", "head_size"), f"{model.head_size} is odd: rotary positions turn pairs", ""
    if parallel.sequence and batch.sequence % tensor:
        yield ("batch", "sequence"), f"{batch.sequence} tokens are no multiple of parallel.tensor {tensor}", ""


def _batches(machines: Machines, parallel: Parallel, batch: Batch) -> Iterator[Contradiction]:
    world = machines.servers * machines.gpus_per_server
    size = parallel.tensor * parallel.pipeline
    if world % size:
        return
    replicas = world // size
    if batch.global_ % (replicas * batch.micro):
        found = f"{batch.global_} sequences are no multiple of {replicas} replicas x micro-batch {batch.micro}"
        yield (
            ("batch", "global"),
            found,
            f"nearest: {max(1, round(batch.global_ / (replicas * batch.micro))) * replicas * batch.micro}",
        )


def _schedule(optimizer: Optimizer, steps: int) -> Iterator[Contradiction]:
    if optimizer.warmup >= steps:
        yield ("optimizer", "warmup"), f"{optimizer.warmup} steps of warm-up in a run of {steps}", ""
    if optimizer.rate_end > optimizer.rate:
        yield ("optimizer", "rate_end"), f"{optimizer.rate_end:g} is above rate {optimizer.rate:g}", ""
    if optimizer.schedule == "wsd" and optimizer.decay is None:
        yield ("optimizer", "decay"), "missing: WSD falls over the last `decay` steps", ""
    if optimizer.schedule == "cosine" and optimizer.decay is not None:
        yield ("optimizer", "decay"), "belongs to schedule wsd; cosine falls until the last step", "remove it"
    if optimizer.decay is not None and optimizer.decay > steps - optimizer.warmup:
        yield ("optimizer", "decay"), f"{optimizer.decay} steps, only {steps - optimizer.warmup} come after warm-up", ""
    if optimizer.overlap_gather and not optimizer.distributed:
        yield (
            ("optimizer", "overlap_gather"),
            "only the distributed optimizer gathers parameters",
            "set distributed: true",
        )
    if optimizer.overlap_gather and not optimizer.overlap_reduce:
        yield (
            ("optimizer", "overlap_gather"),
            "Megatron overlaps the gather only together with the reduction",
            "set overlap_reduce: true",
        )


def _tokens(data: Data) -> Iterator[Contradiction]:
    tokenizer = data.tokenizer
    for name, value in (("end", tokenizer.end), ("padding", tokenizer.padding)):
        if value >= tokenizer.vocabulary:
            yield ("data", "tokenizer", name), f"id {value} is not below the vocabulary of {tokenizer.vocabulary}", ""
    if tokenizer.end == tokenizer.padding:
        found = (
            f"id {tokenizer.end} is also the padding, which bears no loss: the end of a document would not be learned"
        )
        yield ("data", "tokenizer", "end"), found, "give padding an id of its own"
    if not data.sets:
        yield ("data", "sets"), "no dataset", "name one of the manifest, with its weight"


def _window(profile: Window | None, steps: int) -> Iterator[Contradiction]:
    if profile is not None and not profile.first <= profile.last <= steps:
        yield ("profile",), f"steps {profile.first} to {profile.last} of a run of {steps}", ""


def _memory(
    machines: Machines, model: Model, parallel: Parallel, optimizer: Optimizer, data: Data
) -> Iterator[Contradiction]:
    from bedplate_train import shape

    replicas = machines.servers * machines.gpus_per_server // (parallel.tensor * parallel.pipeline)
    if not replicas:
        return
    need = shape.state_bytes(model, parallel, optimizer, data.tokenizer, replicas) / 1e9
    if need > machines.gpu_memory_gb:
        found = (
            f"weights, gradients and optimizer need {need:.0f} GB on the fullest GPU, it has {machines.gpu_memory_gb}"
        )
        yield ("model",), found, "more tensor or pipeline parallelism, or the distributed optimizer"


def _paths(paths: Paths) -> Iterator[Contradiction]:
    if Path(paths.run) == Path(paths.data) or Path(paths.data) in Path(paths.run).parents:
        yield ("paths", "run"), f"{paths.run} is inside the data, which is never written", "a mount of its own"


RULES: tuple[tuple[tuple[str, ...], Any], ...] = (
    (("machines", "parallel"), _layout),
    (("model", "parallel"), _stages),
    (("model", "parallel", "batch"), _divisions),
    (("machines", "parallel", "batch"), _batches),
    (("optimizer", "steps"), _schedule),
    (("data",), _tokens),
    (("profile", "steps"), _window),
    (("machines", "model", "parallel", "optimizer", "data"), _memory),
    (("paths",), _paths),
)
