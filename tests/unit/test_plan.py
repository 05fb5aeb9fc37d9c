"""Which nodes, in which batches."""

from collections import Counter

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from bedplate.decide.fold import NodeState, Status
from bedplate.decide.plan import Plan, make_plan, spread
from bedplate.model.fleet import Node
from bedplate.model.policy import Policy, nodes_of
from unit.fleet_sample import node, nodes
from unit.story import A, B

POLICY = Policy(canary=1, small=2, batch=4, failure_budget=1)


def of(status: Status, runs: str | None = None) -> NodeState:
    return NodeState(status=status, runs=runs)


def shape(plan: Plan) -> list[tuple[str, int]]:
    return [(batch.name, len(batch.nodes)) for batch in plan.batches]


@pytest.mark.parametrize(
    ("count", "policy", "expected"),
    [
        (0, POLICY, []),
        (1, POLICY, [("canary", 1)]),
        (2, POLICY, [("canary", 1), ("small", 1)]),
        (8, POLICY, [("canary", 1), ("small", 2), ("rest", 4), ("rest", 1)]),
        (8, Policy(canary=2, small=0, batch=6, failure_budget=0), [("canary", 2), ("rest", 6)]),
        (3, Policy(canary=0, small=0, batch=1, failure_budget=0), [("rest", 1)] * 3),
    ],
)
def test_a_fresh_fleet_goes_canary_small_rest(count: int, policy: Policy, expected: list[tuple[str, int]]) -> None:
    plan = make_plan(nodes(count), {}, A, policy)
    assert shape(plan) == expected
    assert plan.sizes == [size for _, size in expected]
    assert plan.as_dict()["batches"] == [{"name": b.name, "nodes": list(b.nodes)} for b in plan.batches]


def test_a_node_that_runs_the_target_verified_is_left_alone_and_named() -> None:
    plan = make_plan(nodes(3), {"n001": of(Status.VERIFIED, A), "n002": of(Status.VERIFIED, B)}, A, POLICY)
    assert plan.at_target == ("n001",)
    assert sorted(plan.nodes) == ["n002", "n003"]


def test_a_node_at_the_target_is_done_again_where_a_recheck_was_asked_for() -> None:
    plan = make_plan(nodes(3), {"n001": of(Status.VERIFIED, A)}, A, POLICY, recheck=True)
    assert plan.at_target == ()
    assert sorted(plan.nodes) == ["n001", "n002", "n003"]


@pytest.mark.parametrize("status", [Status.UNVERIFIED, Status.NEVER])
def test_a_node_that_was_never_verified_is_done(status: Status) -> None:
    assert make_plan(nodes(1), {"n001": of(status, A)}, A, POLICY).nodes == ["n001"]


def test_nodes_in_doubt_come_first_then_bad_ones_with_one_fresh_node() -> None:
    states = {
        "n005": of(Status.IN_DOUBT), "n002": of(Status.FAILED), "n003": of(Status.UNREACHABLE),
        "n004": of(Status.RESCUED), "n001": of(Status.VERIFIED, A),
    }  # fmt: skip
    plan = make_plan(nodes(10), states, A, POLICY)
    recovery, *others = plan.batches
    assert (recovery.name, len(recovery.nodes)) == ("recovery", 5)
    assert recovery.nodes[0] == "n005"
    assert set(recovery.nodes[1:4]) == {"n002", "n003", "n004"}
    assert recovery.nodes[4] not in states
    assert (plan.in_doubt, sorted(plan.bad)) == (("n005",), ["n002", "n003", "n004"])
    assert [(b.name, len(b.nodes)) for b in others] == [("canary", 1), ("small", 2), ("rest", 1)]


def test_each_recovery_batch_has_a_fresh_node_while_there_are_any() -> None:
    states = {f"n{i:03d}": of(Status.FAILED) for i in range(1, 10)}
    plan = make_plan(nodes(11), states, A, POLICY)
    assert shape(plan) == [("recovery", 5), ("recovery", 5), ("recovery", 1)]
    assert [b.nodes[-1] for b in plan.batches[:2]] == ["n010", "n011"]


def test_the_canary_is_a_reference_machine_then_a_spare() -> None:
    fleet = [
        node("n1", groups=("training",)), node("n2", groups=("spare",), rack="r02"),
        node("n3", groups=("training", "reference"), rack="r03"), node("n4", groups=(), rack="r00"),
    ]  # fmt: skip
    assert make_plan(fleet, {}, A, POLICY).nodes == ["n3", "n2", "n1", "n4"]


def test_a_reference_machine_leads_also_behind_rack_mates() -> None:
    fleet = [*nodes(9, 3), node("n010", rack="r00", groups=("training", "reference"))]
    assert spread(fleet)[0] == "n010"


def test_660_nodes_in_racks_of_20_never_have_more_than_two_rack_mates_in_a_batch() -> None:
    fleet = nodes(660, 33)
    rack_of = {n.name: n.rack for n in fleet}
    plan = make_plan(fleet, {}, A, Policy(canary=1, small=10, batch=50, failure_budget=3))
    assert all(max(Counter(rack_of[name] for name in b.nodes).values()) <= 2 for b in plan.batches)


# --- properties -----------------------------------------------------------------------------------

fleets = st.lists(
    st.tuples(st.sampled_from(["r1", "r2", "r3"]), st.sampled_from([(), ("training",), ("spare",), ("reference",)])),
    max_size=24,
).map(lambda given: [node(f"n{i:03d}", rack=rack, groups=groups) for i, (rack, groups) in enumerate(given)])
policies = st.builds(
    Policy, canary=st.integers(0, 3), small=st.integers(0, 4), batch=st.integers(1, 6), failure_budget=st.integers(0, 3)
)
states_of = st.lists(st.tuples(st.sampled_from(list(Status)), st.sampled_from([None, A, B])), max_size=30).map(
    lambda given: {f"n{i:03d}": of(status, runs) for i, (status, runs) in enumerate(given)}
)


@settings(max_examples=80, deadline=None)
@given(fleets, states_of, policies, st.booleans())
def test_every_node_is_in_one_batch_or_named_as_left_out(
    fleet: list[Node], states: dict[str, NodeState], policy: Policy, recheck: bool
) -> None:
    plan = make_plan(fleet, states, A, policy, recheck=recheck)
    assert sorted([*plan.nodes, *plan.at_target]) == [n.name for n in fleet]
    assert all(states[name].at_target(A) for name in plan.at_target)
    assert recheck <= (not plan.at_target)
    # recovery before canary before small before rest, none empty, none larger than its size
    order = ["recovery", "canary", "small", "rest"]
    assert [order.index(b.name) for b in plan.batches] == sorted(order.index(b.name) for b in plan.batches)
    largest = {"recovery": policy.batch, "canary": policy.canary, "small": policy.small, "rest": policy.batch}
    room = {name: nodes_of(size, len(fleet)) + (name == "recovery") for name, size in largest.items()}
    assert all(1 <= len(b.nodes) <= room[b.name] for b in plan.batches)
    # nodes in doubt, then bad ones, are the first of all but for the fresh one of each batch
    again = [*plan.in_doubt, *plan.bad]
    recovered = [name for b in plan.batches if b.name == "recovery" for name in b.nodes]
    assert [name for name in recovered if name in again] == again
    assert all(len([n for n in b.nodes if n not in again]) <= 1 for b in plan.batches if b.name == "recovery")
    assert plan.batches == make_plan(fleet[::-1], states, A, policy, recheck=recheck).batches


@settings(max_examples=60, deadline=None)
@given(fleets)
def test_racks_take_turns(fleet: list[Node]) -> None:
    order = spread(fleet)
    assert sorted(order) == [n.name for n in fleet]
    rack_of = {n.name: n.rack for n in fleet}
    total = Counter(rack_of.values())
    seen: Counter[str] = Counter()
    for name in order:
        seen[rack_of[name]] += 1
        for rack, count in total.items():
            assert seen[rack] == count or seen[rack_of[name]] <= seen[rack] + 1
