"""What a node and a rollout are, after which events."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from bedplate.decide.fold import DRAINED, RETURNED, NodeState, Status, fold, mark_of, node_names, rollout_number
from bedplate.model.event import Event
from unit.story import NAMES, A, B, Story


def state(story: Story, node: str = "n1") -> NodeState:
    return fold(story.events).state(node)


def begun() -> Story:
    """n1 runs A, verified; rollout 2 to B has admitted it."""
    return Story().changed(1, A, "n1").started(2, B).of(2, "batch.admitted", B, "n1", batch=0, name="canary")


def test_a_node_that_no_event_names_was_never_seen() -> None:
    assert state(Story().changed(1, A, "n2")) == NodeState()


def test_a_node_runs_an_environment_when_its_change_ended_and_a_verification_passed() -> None:
    found = state(Story().changed(1, A, "n1", packages="p1"))
    assert found.at_target(A)
    assert not found.at_target(B)
    assert (found.runs, found.previous, found.manifest_sha256, found.facts) == (A, None, A, {"packages": "p1"})


def test_a_change_without_a_verification_leaves_the_node_unverified() -> None:
    found = state(begun().of(2, "node.done", B, "n1", manifest_sha256=B))
    assert (found.status, found.runs, found.previous) == (Status.UNVERIFIED, B, A)
    assert not found.at_target(B)


def test_a_verification_after_an_unverified_change_verifies_it() -> None:
    found = state(begun().of(2, "node.done", B, "n1", manifest_sha256=B).verified("n1", B))
    assert found.at_target(B)


def test_a_node_is_in_doubt_from_its_admission() -> None:
    found = state(begun())
    assert (found.status, found.runs, found.target, found.rollout) == (Status.IN_DOUBT, A, B, 2)
    assert not found.at_target(A)


def test_steps_leave_a_node_in_doubt_and_say_how_far_it_came() -> None:
    found = state(begun().of(2, "step.ended", B, "n1", step="Drain", result="changed"))
    assert (found.status, found.step) == (Status.IN_DOUBT, "Drain")


def test_a_node_is_drained_from_its_drain_to_its_return() -> None:
    story = begun()
    assert not state(story).drained
    story.of(2, "step.ended", B, "n1", step=DRAINED, result="ok")
    story.of(2, "node.failed", B, "n1", step="Install", why="no space")
    assert state(story).drained
    assert state(story.of(3, "batch.admitted", B, "n1", batch=0)).drained, "still, until it is given back"
    story.of(3, "step.ended", B, "n1", step=DRAINED, result="skipped")
    assert not state(story.of(3, "step.ended", B, "n1", step=RETURNED, result="ok")).drained


def test_a_node_whose_drain_failed_is_not_drained() -> None:
    story = begun().of(2, "step.ended", B, "n1", step="Drain", result="ok")
    assert not state(story.of(2, "node.failed", B, "n1", step=DRAINED, why="a job runs")).drained


def test_a_node_that_is_drained_after_its_soak_is_given_back_by_the_next_rollout() -> None:
    """A check that passes afterwards mends nothing of that: only a change gives it back."""
    story = Story().changed(1, A, "n1").verified("n1", A, "FAIL", why="a row waits", drained=True)
    assert (state(story).status, state(story).drained) == (Status.FAILED, True)
    story.verified("n1", A)
    assert state(story).status is Status.VERIFIED
    assert not state(story).at_target(A), "it has no jobs: a rollout has something to do there"
    assert state(story.changed(2, A, "n1")).at_target(A)


@pytest.mark.parametrize(("kind", "status"), [("node.failed", Status.FAILED), ("node.unreachable", Status.UNREACHABLE)])
def test_a_bad_node_says_where_and_why(kind: str, status: Status) -> None:
    found = state(begun().of(2, kind, B, "n1", step="Install", why="no space"))
    assert (found.status, found.step, found.why, found.runs) == (status, "Install", "no space", A)


def test_a_failed_node_that_went_on_was_rescued_and_its_end_does_not_count() -> None:
    story = begun().of(2, "node.failed", B, "n1", step="Install", why="no space")
    story.of(2, "step.ended", B, "n1", step="Undo", result="ok")
    assert state(story).status is Status.RESCUED
    story.of(2, "node.verified", B, "n1", verdict="PASS", facts={}, why="")
    story.of(2, "node.done", B, "n1", manifest_sha256=B)
    assert state(story).status is Status.RESCUED
    assert state(story).runs == A


def test_a_failed_node_whose_next_step_was_skipped_stays_failed() -> None:
    story = begun().of(2, "node.failed", B, "n1", step="Install", why="no space")
    assert state(story.of(2, "step.ended", B, "n1", step="Undo", result="skipped")).status is Status.FAILED


def test_a_held_node_is_what_it_was_before() -> None:
    story = Story().changed(1, A, "n1")
    before = state(story)
    story.started(2, B).of(2, "batch.admitted", B, "n1", "n2", batch=0, name="rest")
    story.of(2, "step.ended", B, "n1", "n2", step="Preflight", result="ok")
    story.of(2, "batch.held", B, "n1", "n2", batch=0, reason="over budget")
    assert state(story) == before
    assert state(story, "n2") == NodeState()


def test_a_node_in_doubt_that_is_held_stays_in_doubt() -> None:
    story = begun().of(2, "rollout.abandoned", B, found_by=3)
    before = state(story)
    story.started(3, B).of(3, "batch.admitted", B, "n1", batch=0, name="recovery")
    assert state(story.of(3, "batch.held", B, "n1", batch=0, reason="over budget")) == before


def test_holding_undoes_nothing_but_the_admission_of_its_own_rollout() -> None:
    story = Story().changed(1, A, "n1").changed(2, B, "n1")
    after = state(story)
    assert state(story.of(2, "batch.held", B, "n1", batch=0, reason="late")) == after
    story = begun()
    admitted = state(story)
    assert state(story.of(1, "batch.held", A, "n1", batch=0, reason="late")) == admitted


def test_what_a_killed_rollout_had_admitted_is_in_doubt_and_what_had_ended_is_not() -> None:
    story = Story().changed(1, A, "n1", "n2", "n3").started(2, B)
    story.of(2, "batch.admitted", B, "n1", "n2", batch=0, name="rest")
    story.of(2, "node.verified", B, "n1", verdict="PASS", facts={}, why="")
    story.of(2, "node.done", B, "n1", manifest_sha256=B)
    world = fold(story.events)
    assert [world.state(n).status for n in ("n1", "n2", "n3")] == [
        Status.VERIFIED, Status.IN_DOUBT, Status.VERIFIED,
    ]  # fmt: skip
    assert [world.state(n).runs for n in ("n1", "n2", "n3")] == [B, A, A]
    assert (world.rollouts[2].ended, world.rollouts[2].outcome) == (None, "unfinished")


# --- verifications outside a change ---------------------------------------------------------------


@pytest.mark.parametrize(
    ("verdict", "status"),
    [("FAIL", Status.FAILED), ("ERROR", Status.FAILED), ("UNREACHABLE", Status.UNREACHABLE), ("odd", Status.FAILED)],
)
def test_a_verification_that_does_not_pass_makes_a_node_bad_until_one_passes(verdict: str, status: Status) -> None:
    story = Story().changed(1, A, "n1").verified("n1", A, verdict, why="nvidia-driver-570-open is absent")
    found = state(story)
    assert (found.status, found.step, found.why) == (status, "verification", "nvidia-driver-570-open is absent")
    assert found.runs == A
    assert state(story.verified("n1", A)).at_target(A)


def test_a_passing_verification_does_not_mend_a_failed_change() -> None:
    story = begun().of(2, "node.failed", B, "n1", step="Install", why="no space")
    assert state(story.verified("n1", A)).status is Status.FAILED
    assert state(story.verified("n1", B)).status is Status.FAILED


@pytest.mark.parametrize("verdict", ["PASS", "FAIL"])
def test_a_verification_against_another_environment_changes_facts_only(verdict: str) -> None:
    story = Story().changed(1, A, "n1")
    before = state(story)
    story.verified("n1", B, verdict, facts={"packages": "p2"})
    assert state(story).facts == {"packages": "p2"}
    assert (state(story).status, state(story).verified_at) == (before.status, before.verified_at)


def test_a_verification_of_the_old_environment_is_none_of_a_change_in_flight() -> None:
    story = begun().verified("n1", A).of(2, "node.done", B, "n1", manifest_sha256=B)
    assert state(story).status is Status.UNVERIFIED


def test_the_last_verification_inside_a_change_decides() -> None:
    story = begun().verified("n1", B).verified("n1", B, "FAIL").of(2, "node.done", B, "n1", manifest_sha256=B)
    assert state(story).status is Status.UNVERIFIED


def test_a_verification_of_a_node_that_runs_nothing_does_not_make_it_run_something() -> None:
    found = state(Story().verified("n1", A, facts={"packages": "p1"}))
    assert (found.status, found.runs, found.facts) == (Status.NEVER, None, {"packages": "p1"})


def test_a_verification_without_facts_keeps_the_known_ones() -> None:
    story = Story().changed(1, A, "n1", packages="p1").verified("n1", A, "UNREACHABLE", why="no route")
    assert state(story).facts == {"packages": "p1"}


# --- rollouts -------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("kinds", "outcome", "ended"),
    [
        ([], "unfinished", False),
        (["rollout.ended"], "ended", True),
        (["rollout.stopped"], "stopped", False),
        (["rollout.stopped", "rollout.ended"], "stopped", True),
        (["rollout.abandoned"], "abandoned", True),
        (["rollout.praised"], "unfinished", False),
    ],
)
def test_a_rollout_is_what_its_events_say(kinds: list[str], outcome: str, ended: bool) -> None:
    story = Story().started(7, A, token="t")
    for kind in kinds:
        story.of(7, kind, A, reason="2 bad nodes")
    record = fold(story.events).rollouts[7]
    assert (record.outcome, record.ended is not None) == (outcome, ended)
    assert (record.reason == "2 bad nodes") == (outcome == "stopped")
    assert (record.name, record.environment, record.actor, record.body["token"]) == ("A", A, "maria@ctl", "t")


def test_two_rollouts_of_the_same_number_have_different_marks() -> None:
    one, two = Story().started(1, A).events[0], Story().resolved(A).started(1, A).events[1]
    assert mark_of(one) != mark_of(two)
    assert fold([one]).rollouts[1].mark == mark_of(one)


def test_the_end_of_a_rollout_that_never_started_is_ignored() -> None:
    assert fold(Story().of(3, "rollout.ended", A).events).rollouts == {}


def test_names_of_environments_come_from_their_locks() -> None:
    assert fold(Story().resolved(A).resolved(B).events).names == NAMES


@pytest.mark.parametrize("subject", ["rollout:x", "rollout:", "rollout:-1", "rollout:1.5", "rollout:²", "role:1"])
def test_a_subject_that_is_no_rollout_number_is_none(subject: str) -> None:
    event = Story().tell("rollout.started", (subject,), A, {})
    assert rollout_number(event) is None
    assert fold([event]).rollouts == {}


# --- properties -----------------------------------------------------------------------------------

KINDS = [
    "batch.admitted", "batch.held", "step.ended", "node.failed", "node.unreachable", "node.verified", "node.done",
    "rollout.started", "rollout.stopped", "rollout.ended", "rollout.abandoned", "node.praised", "image.placed",
]  # fmt: skip
NODES = ["n1", "n2"]


def told(draws: list[tuple[str, int, str, str, str, str, bool]]) -> list[Event]:
    story = Story().resolved(A).resolved(B)
    for kind, number, environment, nodes, result, verdict, fact in draws:
        body = {
            "environment": "A", "batch": 0, "name": "rest", "step": "Install", "result": result, "why": "because",
            "verdict": verdict, "facts": {"packages": "p"} if fact else {}, "manifest_sha256": A, "reason": "because",
        }  # fmt: skip
        story.of(number, kind, environment, *(() if kind.startswith("rollout.") else nodes.split()), **body)
    return story.events


stories = st.lists(
    st.tuples(
        st.sampled_from(KINDS), st.integers(1, 3), st.sampled_from([A, B]), st.sampled_from(["n1", "n2", "n1 n2"]),
        st.sampled_from(["ok", "skipped"]), st.sampled_from(["PASS", "FAIL", "UNREACHABLE"]), st.booleans(),
    ),
    max_size=20,
).map(told)  # fmt: skip


@settings(max_examples=60, deadline=None)
@given(stories, st.lists(st.integers(0, 22), max_size=3))
def test_folding_in_parts_is_folding_at_once(events: list[Event], cuts: list[int]) -> None:
    cuts = sorted(min(cut, len(events)) for cut in cuts)
    world = fold([])
    for start, end in zip([0, *cuts], [*cuts, len(events)], strict=True):
        world = fold(events[start:end], world)
    assert world == fold(events)


@settings(max_examples=60, deadline=None)
@given(stories)
def test_what_is_folded_keeps_its_invariants(events: list[Event]) -> None:
    passed: dict[str, set[str | None]] = {}
    open_since: dict[str, bool] = {}
    for event in events:
        for name in node_names(event):
            if event.kind == "node.verified" and event.body["verdict"] == "PASS":
                passed.setdefault(name, set()).add(event.environment)
            if event.kind == "batch.admitted":
                open_since[name] = True
            elif event.kind in ("node.done", "node.failed", "node.unreachable", "batch.held"):
                open_since[name] = False
    world = fold(events)
    assert world.head == len(events)
    for name in NODES:
        found = world.state(name)
        if found.status is Status.VERIFIED:
            assert found.runs in passed.get(name, set()), "verified, but no verification passed"
        if open_since.get(name) and found.status is not Status.IN_DOUBT:
            raise AssertionError(f"{name} was admitted, no end was recorded, and it is {found.status}")
        if found.status in (Status.VERIFIED, Status.UNVERIFIED):
            assert found.runs is not None
        assert (found.status is Status.NEVER) <= (found.runs is None)


@settings(max_examples=30, deadline=None)
@given(stories)
def test_events_of_unknown_kinds_change_nothing(events: list[Event]) -> None:
    known = [event for event in events if event.kind not in ("node.praised", "image.placed", "rollout.praised")]
    every, some = fold(events), fold(known)
    assert [every.state(name) for name in NODES] == [some.state(name) for name in NODES]
    assert every.rollouts == some.rollouts
