"""A comparison that names the part, and cannot pass by accident."""

import pytest

from bedplate_train import state


def digests(**changed: str) -> state.Digests:
    return {part: {"value": changed.get(part.replace(" ", "_"), "same")} for part in state.PARTS}


def test_equal_states_have_no_difference() -> None:
    assert state.differences({0: digests(), 1: digests()}, {0: digests(), 1: digests()}) == {}


@pytest.mark.parametrize("part", state.PARTS)
def test_the_part_that_differs_is_named(part: str) -> None:
    found = state.differences({0: digests(), 1: digests()}, {0: digests(), 1: digests(**{part.replace(" ", "_"): "x"})})
    assert found == {part: ["rank 1: value"]}
    assert part in state.told(found)


@pytest.mark.parametrize(
    ("left", "right"),
    [
        ({}, {}),
        ({0: digests()}, {1: digests()}),
        ({0: {}}, {0: {}}),
        ({0: digests() | {"optimizer": {}}}, {0: digests()}),
    ],
)
def test_an_empty_comparison_is_no_comparison(left: dict[int, state.Digests], right: dict[int, state.Digests]) -> None:
    with pytest.raises(ValueError, match=r"cannot be compared|is empty"):
        state.differences(left, right)
