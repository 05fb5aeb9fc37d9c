"""When a batch may begin or go on, and how many nodes a rollout can lose."""

from collections.abc import Mapping
from dataclasses import dataclass, replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from bedplate.decide.fold import BAD, NodeState, Status
from bedplate.decide.judge import judge
from bedplate.decide.plan import Batch, Plan, make_plan
from bedplate.model.fleet import Node
from bedplate.model.policy import Policy
from unit.fleet_sample import nodes
from unit.story import A

PLAN = Plan(
    (
        Batch("recovery", ("r1", "r2", "f1")), Batch("canary", ("c1",)), Batch("small", ("s1", "s2")),
        Batch("rest", ("t1",)),
    ),
    at_target=(), in_doubt=("r1",), bad=("r2",),
)  # fmt: skip
FAILED, DEAD = NodeState(Status.FAILED, step="Install"), NodeState(Status.UNREACHABLE, step="Take")
DOUBT, GOOD = NodeState(Status.IN_DOUBT), NodeState(Status.VERIFIED, runs=A)


@pytest.mark.parametrize(
    ("index", "entering", "states", "budget", "reason"),
    [
        # nodes that are still to be retried do not count, nor does the batch that is to be admitted
        (0, True, {"r1": DOUBT, "r2": FAILED, "s1": DEAD, "t1": FAILED}, 0, ""),
        (1, True, {"r1": GOOD, "r2": FAILED, "s1": DEAD}, 0, "1 bad node, failure budget 0: r2 failed at 'Install'"),
        (1, True, {"r1": GOOD, "r2": FAILED, "s1": DEAD}, 1, ""),
        # bad nodes outside the plan count
        (0, True, {"x1": DEAD, "x2": NodeState(Status.RESCUED)}, 1,
         "2 bad nodes, failure budget 1: x1 unreachable at 'Take', x2 rescued"),
        (0, True, {"x1": DOUBT}, 0, "1 bad node, failure budget 0: x1 in doubt"),
        # at a later gate the batch's own bad nodes count, those that are still at it do not
        (2, False, {"s1": FAILED, "s2": DOUBT}, 0, "1 bad node, failure budget 0: s1 failed at 'Install'"),
        (2, False, {"s1": FAILED, "s2": DOUBT}, 1, ""),
        (2, False, {"s1": DOUBT, "s2": DOUBT}, 0, ""),
        (2, True, {"s1": FAILED, "s2": DOUBT}, 0, ""),
        # a bad canary stops whatever the budget: at its own later gate, and for every later batch
        (1, False, {"c1": FAILED}, 9, "canary c1 is bad: c1 failed at 'Install'"),
        (2, True, {"c1": DEAD}, 9, "canary c1 is bad: c1 unreachable at 'Take'"),
        (3, False, {"c1": DOUBT, "t1": DOUBT}, 9, "canary c1 is bad: c1 in doubt"),
        (1, True, {"c1": FAILED}, 9, ""),
        # what is not bad never counts
        (3, True, {"c1": GOOD, "s1": NodeState(Status.UNVERIFIED), "x": NodeState()}, 0, ""),
    ],
)  # fmt: skip
def test_verdicts(index: int, entering: bool, states: Mapping[str, NodeState], budget: int, reason: str) -> None:
    verdict = judge(PLAN, index, states, budget, entering=entering)
    assert (verdict.reason, verdict.go) == (reason, not reason)
    assert (verdict.batch, verdict.nodes) == (index, PLAN.batches[index].nodes)


def test_a_long_list_of_bad_nodes_is_cut_and_counted() -> None:
    states = {f"x{i:02d}": NodeState(Status.FAILED) for i in range(25)}
    reason = judge(PLAN, 0, states, 3, entering=True).reason
    assert reason.startswith("25 bad nodes, failure budget 3: x00 failed, ")
    assert reason.endswith("x19 failed and 5 more")


# --- a rollout without Ansible --------------------------------------------------------------------


@dataclass
class Ran:
    """What a rollout did: states after it; the batches it admitted; whether it stopped before its end."""

    states: dict[str, NodeState]
    admitted: list[Batch]
    held: list[str]
    stopped: bool


def rollout(fleet: list[Node], states: Mapping[str, NodeState], policy: Policy, breaks: Mapping[str, str]) -> Ran:
    """Batches, gates and failures as playbooks/rollout.yml has them; breaks: node -> where it breaks."""
    plan = make_plan(fleet, states, A, policy)
    ran = Ran(dict(states), [], [], stopped=False)
    for index, batch in enumerate(plan.batches):
        if not judge(plan, index, ran.states, policy.failure_budget, entering=True).go:
            ran.stopped = True
            return ran
        before = dict(ran.states)
        ran.admitted.append(batch)
        for name in batch.nodes:
            ran.states[name] = FAILED if breaks.get(name) == "preflight" else DOUBT
        alive = [name for name in batch.nodes if ran.states[name].status is Status.IN_DOUBT]
        if alive and not judge(plan, index, ran.states, policy.failure_budget, entering=False).go:
            for name in alive:
                ran.states[name] = before.get(name, NodeState())
            ran.held, ran.stopped = alive, True
            return ran
        for name in alive:
            ran.states[name] = DEAD if breaks.get(name) == "converge" else replace(GOOD, rollout=1)
        if all(ran.states[name].status in BAD for name in batch.nodes) and index + 1 < len(plan.batches):
            ran.stopped = True  # Ansible's own rule
            return ran
    return ran


policies = st.builds(
    Policy, canary=st.integers(0, 2), small=st.integers(0, 4), batch=st.integers(1, 6), failure_budget=st.integers(0, 4)
)
breakages = st.lists(st.sampled_from(["", "", "preflight", "converge"]), min_size=20, max_size=20).map(
    lambda where: {f"n{i + 1:03d}": at for i, at in enumerate(where) if at}
)
earlier = st.lists(st.sampled_from([NodeState(), NodeState(), GOOD, FAILED, DOUBT]), min_size=24, max_size=24).map(
    lambda states: {f"n{i + 1:03d}": state for i, state in enumerate(states)}
)


@settings(max_examples=150, deadline=None)
@given(policies, breakages, earlier)
def test_bad_nodes_never_exceed_the_budget_by_more_than_the_batch_in_flight(
    policy: Policy, breaks: dict[str, str], states: dict[str, NodeState]
) -> None:
    fleet = nodes(20, 3)  # the last four nodes of `states` are not asked for
    ran = rollout(fleet, states, policy, breaks)
    bad = {name for name, state in ran.states.items() if state.status in BAD}
    made_bad = bad - {name for name, state in states.items() if state.status in BAD}
    if not ran.admitted:
        assert not made_bad
        return
    flight = ran.admitted[-1].nodes
    assert len(made_bad - set(flight)) <= policy.failure_budget
    assert len(made_bad) <= policy.failure_budget + len(flight)
    # A batch with a node that was not bad before began only with the bad ones tried so far within the budget.
    if states.get(flight[-1], NodeState()).status not in BAD:
        not_reached = {node.name for node in fleet} - {name for batch in ran.admitted for name in batch.nodes}
        assert len(bad - not_reached - set(flight)) <= policy.failure_budget
    canaries = {name for batch in ran.admitted for name in batch.nodes if batch.name == "canary"}
    after = [batch.name for batch in ran.admitted][-1] not in ("canary", "recovery")
    assert not (canaries & bad and after), "a batch began behind a bad canary"
    assert all(ran.states[name] == states.get(name, NodeState()) for name in ran.held), "held nodes were touched"


@settings(max_examples=60, deadline=None)
@given(policies, st.sets(st.integers(1, 20), max_size=4))
def test_dead_nodes_within_the_budget_do_not_keep_the_others_from_the_target(policy: Policy, dead: set[int]) -> None:
    fleet, broken = nodes(20, 3), {f"n{i:03d}": "preflight" for i in dead}
    policy = replace(policy, failure_budget=len(dead))
    states: dict[str, NodeState] = {}
    for _ in range(len(dead) + 1):  # a run may stop at each dead node once: as a canary, or as a whole batch
        states = rollout(fleet, states, policy, broken).states
    assert {node.name for node in fleet if states[node.name].status is Status.VERIFIED} == {
        node.name for node in fleet
    } - broken.keys()


@settings(max_examples=60, deadline=None)
@given(policies, breakages, earlier)
def test_when_everything_is_mended_one_run_carries_all_nodes_to_the_target(
    policy: Policy, breaks: dict[str, str], states: dict[str, NodeState]
) -> None:
    fleet = nodes(24, 3)
    ran = rollout(fleet, rollout(fleet, states, policy, breaks).states, policy, {})
    assert not ran.stopped
    assert all(ran.states[node.name].status is Status.VERIFIED for node in fleet)


def test_bad_nodes_can_be_mended_one_at_a_time_whatever_the_budget() -> None:
    bad = {name: NodeState(status=Status.FAILED) for name in ("n1", "n2", "n3")}
    mending = Plan((Batch("recovery", ("n1",)),), (), (), ("n1",))
    assert judge(mending, 0, bad, 0, entering=True).go
    many = Plan((Batch("recovery", ("n1", "n2")),), (), (), ("n1", "n2"))
    assert not judge(many, 0, bad, 0, entering=True).go
    fresh = Plan((Batch("canary", ("n4",)),), (), (), ())
    assert not judge(fresh, 0, bad, 0, entering=True).go
