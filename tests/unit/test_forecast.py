"""How long a plan should take, from what earlier ones took, and what nodes leave."""

import pytest

from bedplate.decide.forecast import expected_duration_s, leaving, seconds_a_batch
from bedplate.decide.plan import Batch, Plan
from unit.story import A, B, Story

TWO = Plan((Batch("canary", ("n1",)), Batch("rest", ("n2", "n3"))), (), (), ())


def test_without_history_nothing_is_known() -> None:
    assert seconds_a_batch([]) is None
    assert seconds_a_batch(Story().resolved(A).verified("n1", A).events) is None
    assert expected_duration_s(TWO, None) is None


def test_a_batch_lasts_from_its_admission_to_the_end_of_its_last_node() -> None:
    story = Story().started(1, A)  # an event a second
    story.of(1, "batch.admitted", A, "n1", batch=0, name="canary")
    story.of(1, "node.done", A, "n1", manifest_sha256=A)  # 1 s
    story.of(1, "batch.admitted", A, "n2", "n3", batch=1, name="rest")
    story.of(1, "step.ended", A, "n2", step="Drain", result="ok")
    story.of(1, "node.failed", A, "n2", step="Install", why="x")
    story.of(1, "node.unreachable", A, "n3", step="Install", why="x")  # 3 s
    story.of(1, "rollout.ended", A)
    assert seconds_a_batch(story.events) == 2
    assert expected_duration_s(TWO, 2) == 4


def test_a_batch_that_a_kill_cut_off_is_no_history() -> None:
    story = Story().started(1, A).of(1, "batch.admitted", A, "n1", batch=0, name="canary")
    story.started(2, A).of(2, "batch.admitted", A, "n1", batch=0, name="recovery")
    assert seconds_a_batch(story.events) is None
    story.of(2, "node.done", A, "n1", manifest_sha256=A)
    assert seconds_a_batch(story.events) == 1


@pytest.mark.parametrize(("history", "expected"), [(0.0, 0.2), (10.04, 20.1), (60, 120)])
def test_a_plan_takes_its_batches(history: float, expected: float) -> None:
    assert expected_duration_s(TWO, history) == expected


def test_an_empty_plan_takes_no_time() -> None:
    assert expected_duration_s(Plan((), (), (), ()), 60) == 0


def test_nodes_leave_environments_the_most_common_first() -> None:
    assert leaving([A, None, B, B, A, B, "sha256:c", "sha256:c"], A) == [B, "sha256:c"]
    assert leaving([None, A], A) == []
