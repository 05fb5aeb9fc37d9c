"""Packages of the lock: exact versions, held, and nothing of another driver branch."""

import re

import pytest

from bedplate.model.layers import Layer
from bedplate.observe.expectation import Expectation
from bedplate.observe.observed import Observed


def differences(expected: dict[str, str], observed: Observed) -> str:
    return ", ".join(
        f"{name} is {observed.packages.get(name, 'absent')}, lock says {version}"
        for name, version in expected.items()
        if observed.packages.get(name) != version
    )


def packages(expected: Expectation, layer: str) -> dict[str, str]:
    if layer in expected.unmanaged:
        pytest.skip(f"unmanaged: {expected.unmanaged[layer]}")
    return expected.packages_of(layer)


@pytest.mark.parametrize("layer", [pytest.param(layer.value, marks=pytest.mark.layer(layer.value)) for layer in Layer])
def test_packages(node: str, layer: str, expected: Expectation, observed: Observed) -> None:
    wanted = packages(expected, layer)
    if not wanted:
        pytest.skip("the lock has no packages of this layer")
    found = differences(wanted, observed)
    assert not found, found


@pytest.mark.layer("driver")
def test_nothing_of_another_branch_or_origin(node: str, expected: Expectation, observed: Observed) -> None:
    extra = sorted(
        name
        for name in observed.packages.keys() - expected.packages.keys()
        if any(re.fullmatch(pattern, name) for pattern in expected.replaces)
    )
    assert not extra, f"installed, but not in the lock: {', '.join(extra)}"


@pytest.mark.layer("os")
def test_packages_are_held(node: str, expected: Expectation, observed: Observed) -> None:
    loose = sorted(expected.packages.keys() - observed.held)
    assert not loose, f"not held: {', '.join(loose)}"
