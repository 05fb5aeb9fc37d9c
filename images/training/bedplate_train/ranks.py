"""The map: which rank sits on which GPU of which server, and what it computes.

Megatron numbers ranks by an order of dimensions, the fastest first. With tensor T, pipeline P and D replicas:

    tensor-data-pipeline (Megatron's default)    rank = t + T*d + T*D*p    a stage is D neighbours
    tensor-pipeline-data                         rank = t + T*p + T*P*d    a replica is P neighbours

Invariants, checked before anything is computed:
- a tensor group is on one server;
- a replica's GPUs are part of one server, or all the GPUs of the servers that it touches: a lost server then takes
  out one replica and no more.

Example: T=8, P=8, 640 servers of 8 in the default order. Replica 3 sits on servers 3, 83, 163, ... 563; a lost server n
takes out replica n % 80.
"""

from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass
from typing import Protocol

from bedplate_train.faults import Fault


class MachinesLike(Protocol):
    @property
    def servers(self) -> int: ...
    @property
    def gpus_per_server(self) -> int: ...


class ParallelLike(Protocol):
    @property
    def tensor(self) -> int: ...
    @property
    def pipeline(self) -> int: ...
    @property
    def order(self) -> str: ...


@dataclass(frozen=True, order=True)
class Seat:
    """A rank: where it runs and what it computes."""

    rank: int
    server: str
    gpu: str  # local rank, and the device's UUID where there is one
    tensor_group: int  # number of the group, in the order of its first rank
    tensor_rank: int
    stage: int
    replica: int


def seat(rank: int, machines: MachinesLike, parallel: ParallelLike, server: str = "", gpu: str = "") -> Seat:
    """What a rank computes; where it runs, if not said, is as torchrun numbers ranks: server by server."""
    tensor, pipeline = parallel.tensor, parallel.pipeline
    replicas = machines.servers * machines.gpus_per_server // (tensor * pipeline)
    inner = rank // tensor
    if parallel.order == "tensor-data-pipeline":
        replica, stage = inner % replicas, inner // replicas
    else:
        stage, replica = inner % pipeline, inner // pipeline
    node, local = divmod(rank, machines.gpus_per_server)
    return Seat(rank, server or f"server-{node:03d}", gpu or str(local), inner, rank % tensor, stage, replica)


def seats(machines: MachinesLike, parallel: ParallelLike) -> list[Seat]:
    return [seat(rank, machines, parallel) for rank in range(machines.servers * machines.gpus_per_server)]


def faults(chart: Sequence[Seat]) -> list[Fault]:
    """Every group that leaves its server, every replica that shares servers with another."""
    found = []
    on_server: dict[str, set[int]] = defaultdict(set)
    for place in chart:
        on_server[place.server].add(place.rank)
    for group, members in _grouped(chart, "tensor_group").items():
        servers = sorted({m.server for m in members})
        if len(servers) > 1:
            said = f"tensor group {group} (ranks {_span(members)}) is on servers {', '.join(servers)}"
            found.append(Fault(f"rank {members[0].rank}", said, "a tensor group stays on one server"))
    for replica, members in _grouped(chart, "replica").items():
        servers = sorted({m.server for m in members})
        if len(servers) == 1:
            continue
        strangers = sorted({r for s in servers for r in on_server[s]} - {m.rank for m in members})
        if strangers:
            said = (
                f"replica {replica} is on {len(servers)} servers ({', '.join(servers[:4])}) and does not fill them: "
                f"ranks {', '.join(map(str, strangers[:4]))} of another replica are there too"
            )
            remedy = "a lost server must take out one replica: change tensor, pipeline or parallel.order"
            found.append(Fault(f"rank {members[0].rank}", said, remedy))
    return found


def missing(chart: Sequence[Seat], machines: MachinesLike) -> list[Fault]:
    """What the machines that came up have otherwise than the configuration says."""
    found = []
    world = machines.servers * machines.gpus_per_server
    if len(chart) != world:
        said = f"{len(chart)} ranks came up, the configuration has {machines.servers} x {machines.gpus_per_server}"
        found.append(Fault("ranks", said, "start as many servers as machines.servers says"))
    for server, members in sorted(_grouped(chart, "server").items()):
        if len(members) != machines.gpus_per_server:
            said = f"{server} has {len(members)} ranks, machines.gpus_per_server is {machines.gpus_per_server}"
            found.append(Fault(f"server {server}", said, "one launcher a server; no two servers of one name"))
        doubled = sorted({m.gpu for m in members if sum(n.gpu == m.gpu for n in members) > 1})
        if doubled:
            found.append(Fault(f"server {server}", f"two ranks on GPU {', '.join(doubled)}", "one rank a GPU"))
    return found


def document(chart: Iterable[Seat]) -> list[dict[str, object]]:
    return [asdict(place) for place in chart]


def table(chart: Sequence[Seat]) -> str:
    """For people; a line a rank, one a server where each server is one tensor group."""
    wide = max([6, *(len(s.server) for s in chart)])
    lines = [f"{'rank':>6}  {'server':<{wide}}  {'GPU':<4}  {'TP group':>8}  {'PP stage':>8}  {'DP replica':>10}"]
    for place in chart:
        gpu = place.gpu.partition(" ")[0]
        lines.append(
            f"{place.rank:>6}  {place.server:<{wide}}  {gpu:<4}  {place.tensor_group:>8}  "
            f"{place.stage:>8}  {place.replica:>10}"
        )
    return "\n".join(lines)


def _grouped(chart: Iterable[Seat], name: str) -> dict[object, list[Seat]]:
    found: dict[object, list[Seat]] = defaultdict(list)
    for place in chart:
        found[getattr(place, name)].append(place)
    return found


def _span(members: Sequence[Seat]) -> str:
    numbers = sorted(m.rank for m in members)
    return f"{numbers[0]} to {numbers[-1]}"
