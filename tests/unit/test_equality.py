"""Whether a node is again what it was."""

import pytest

from bedplate.decide.equality import Return, returns
from unit.story import A, B, Story

ONE, OTHER = {"packages": "p1", "files": "f1", "image": "i1"}, {"packages": "p1", "files": "f2", "image": "i1"}


def back(then: dict[str, str], now: dict[str, str]) -> Return:
    story = Story().changed(1, A, "n1", **then).changed(2, B, "n1", packages="pb")
    began = len(story.events) + 1
    story.changed(3, A, "n1", **now)
    [found] = returns(story.events, ["n1"], A, began)
    return found


def test_a_node_with_the_facts_of_before_is_equal() -> None:
    found = back(ONE, ONE)
    assert found.equal
    assert found.differs == []
    assert (found.then, found.now) == (ONE, ONE)
    assert (found.then_event, found.now_event) == (3, 13)


@pytest.mark.parametrize(
    ("then", "now", "differs"),
    [
        (ONE, OTHER, ["files"]),
        (ONE, {"packages": "p1", "files": "f1"}, ["image"]),
        ({"packages": "p1"}, ONE, ["files", "image"]),
        (ONE, {}, ["files", "image", "packages"]),
    ],
)
def test_a_node_with_other_facts_is_not(then: dict[str, str], now: dict[str, str], differs: list[str]) -> None:
    found = back(then, now)
    assert not found.equal
    assert found.differs == differs


def test_nothing_against_nothing_is_not_equal() -> None:
    assert not back({}, {}).equal
    [never] = returns(Story().changed(1, A, "n2", **ONE).events, ["n1"], A, 1)
    assert (never.equal, never.then_event, never.now_event) == (False, None, None)


def test_the_last_passing_verification_under_that_environment_is_what_it_was() -> None:
    story = Story().changed(1, A, "n1", **OTHER)
    story.verified("n1", A, facts=ONE)
    story.verified("n1", A, "FAIL", facts=OTHER).verified("n1", B, facts=OTHER)
    began = len(story.events) + 1
    story.changed(2, A, "n1", **OTHER).verified("n1", A, facts=ONE)
    assert [r.equal for r in returns(story.events, ["n1"], A, began)] == [True]


def test_a_failed_return_is_not_equal_to_what_it_was() -> None:
    story = Story().changed(1, A, "n1", **ONE).changed(2, B, "n1", **OTHER)
    began = len(story.events) + 1
    story.started(3, A).of(3, "batch.admitted", A, "n1", batch=0, name="canary")
    story.of(3, "node.verified", A, "n1", verdict="FAIL", facts=ONE, why="x")
    [found] = returns(story.events, ["n1"], A, began)
    assert not found.equal
    assert found.now_event is None
