"""The map: who sits where; groups that leave their server, replicas that share one."""

from dataclasses import dataclass, replace

from hypothesis import given, settings
from hypothesis import strategies as st

from bedplate_train import ranks


@dataclass(frozen=True)
class Machines:
    servers: int
    gpus_per_server: int


@dataclass(frozen=True)
class Parallel:
    tensor: int
    pipeline: int
    order: str = "tensor-data-pipeline"


LARGE = Machines(640, 8), Parallel(8, 8)


def test_a_lost_server_takes_out_one_replica_of_the_500b_plan() -> None:
    chart = ranks.seats(*LARGE)
    assert not ranks.faults(chart)
    for server in (0, 79, 80, 639):
        lost = [s for s in chart if s.server == f"server-{server:03d}"]
        assert {s.replica for s in lost} == {server % 80}
        assert {s.stage for s in lost} == {server // 80}
    replica = sorted({int(s.server[-3:]) for s in chart if s.replica == 3})
    assert replica == [3 + 80 * stage for stage in range(8)]


def test_the_other_order_puts_a_replica_on_neighbours() -> None:
    chart = ranks.seats(LARGE[0], Parallel(8, 8, "tensor-pipeline-data"))
    assert sorted({int(s.server[-3:]) for s in chart if s.replica == 3}) == list(range(24, 32))
    assert not ranks.faults(chart)


def test_a_tensor_group_on_two_servers_is_named() -> None:
    chart = ranks.seats(Machines(2, 4), Parallel(4, 2))
    moved = [replace(s, server="server-001") if s.rank == 3 else s for s in chart]
    assert any("tensor group 0" in str(f) and "server-000, server-001" in str(f) for f in ranks.faults(moved))


def test_a_pipeline_that_shares_its_servers_is_named() -> None:
    chart = ranks.seats(Machines(2, 8), Parallel(4, 2))
    found = [str(f) for f in ranks.faults(chart)]
    assert len(found) == 2
    assert "replica 0" in found[0]
    assert "ranks 4, 5, 6, 7 of another replica are there too" in found[0]


def test_servers_that_came_up_otherwise_are_told() -> None:
    machines, parallel = Machines(2, 4), Parallel(2, 1)
    chart = ranks.seats(machines, parallel)
    assert not ranks.missing(chart, machines)
    one_name = [replace(s, server="vm") for s in chart]
    assert any("vm has 8 ranks" in str(f) for f in ranks.missing(one_name, machines))
    assert any("two ranks on GPU" in str(f) for f in ranks.missing(one_name, machines))
    assert any("6 ranks came up" in str(f) for f in ranks.missing(chart[:6], machines))


SIZES = st.tuples(st.sampled_from([1, 2, 4, 8]), st.integers(1, 6), st.integers(1, 6), st.integers(1, 4))
ORDERS = st.sampled_from(["tensor-data-pipeline", "tensor-pipeline-data"])


@settings(max_examples=200, deadline=None)
@given(SIZES, ORDERS)
def test_every_rank_has_one_place_and_every_place_one_rank(sizes: tuple[int, int, int, int], order: str) -> None:
    tensor, pipeline, replicas, servers = sizes
    world = tensor * pipeline * replicas
    machines = Machines(servers, world // servers) if world % servers == 0 else Machines(1, world)
    chart = ranks.seats(machines, Parallel(tensor, pipeline, order))
    places = {(s.tensor_rank, s.stage, s.replica) for s in chart}
    assert len(places) == world
    assert places == {(t, p, d) for t in range(tensor) for p in range(pipeline) for d in range(replicas)}
    for group in range(world // tensor):
        members = [s for s in chart if s.tensor_group == group]
        assert [s.tensor_rank for s in members] == list(range(tensor))
        assert len({(s.stage, s.replica) for s in members}) == 1


@settings(max_examples=200, deadline=None)
@given(SIZES, ORDERS)
def test_without_faults_a_lost_server_is_one_replica_or_holds_whole_ones(
    sizes: tuple[int, int, int, int], order: str
) -> None:
    tensor, pipeline, replicas, servers = sizes
    world = tensor * pipeline * replicas
    if world % servers:
        return
    chart = ranks.seats(Machines(servers, world // servers), Parallel(tensor, pipeline, order))
    if ranks.faults(chart):
        return
    for server in {s.server for s in chart}:
        here = [s for s in chart if s.server == server]
        if len({s.replica for s in here}) > 1:
            for replica in {s.replica for s in here}:
                assert {s.server for s in chart if s.replica == replica} == {server}


def test_the_table_has_a_line_for_each_rank() -> None:
    chart = ranks.seats(*LARGE)
    lines = ranks.table(chart).splitlines()
    assert len(lines) == 5121
    assert lines[641].split() == ["640", "server-080", "0", "80", "1", "0"]
