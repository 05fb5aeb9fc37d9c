"""How long a plan should take, from what earlier ones took, and what nodes leave."""

import pytest

from bedplate.decide.forecast import expected_duration_s, leaving, seconds_a_batch, seconds_left, span
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


@pytest.mark.parametrize(
    ("spans", "elapsed_s", "waiting", "history", "soak_s", "expected"),
    [
        ([], None, 3, None, 0, None),  # nothing like it was ever done
        ([], 10.0, 2, 60.0, 0, 170.0),  # 50 of the batch in flight, twice 60
        ([], None, 2, 60.0, 300, 720.0),
        ([100.0, 200.0], 30.0, 1, 60.0, 0, 270.0),  # its own batches say more than history
        ([100.0], 500.0, 1, None, 0, 100.0),  # one that takes longer takes no time off the others
        ([100.0], None, 0, None, 600, 0.0),
    ],
)
def test_what_is_left_is_the_rest_of_the_batch_in_flight_and_those_that_wait(
    spans: list[float],
    elapsed_s: float | None,
    waiting: int,
    history: float | None,
    soak_s: int,
    expected: float | None,
) -> None:
    assert seconds_left(spans, elapsed_s, waiting, history, soak_s) == expected


@pytest.mark.parametrize(
    ("seconds", "said"),
    [(0.4, "0 s"), (119, "119 s"), (120, "2 min"), (7100, "118 min"), (7200, "2 h 0 min"), (12000, "3 h 20 min")],
)
def test_a_span_is_said_as_a_person_would(seconds: float, said: str) -> None:
    assert span(seconds) == said
