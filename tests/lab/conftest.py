"""A running lab for the tests of this folder, beside any lab that somebody works in."""

import os
from collections.abc import Iterator

import pytest

from lab import lifecycle
from lab.places import DEFAULT_STATE, Places, places
from lab.steps import Steps

NODES = 4


@pytest.fixture(scope="session")
def lab_places() -> Iterator[Places]:
    """The tests' own lab, named in the environment, so that commands find it too; not yet up.

    It shares the trees of the first lab. Each worker of pytest-xdist has a lab of its own: a lab waits more than it
    works, and two side by side take much less time than one after the other.
    BEDPLATE_LAB_KEEP=1: the lab that BEDPLATE_LAB names, as it is.
    """
    if os.environ.get("BEDPLATE_LAB_KEEP") == "1":
        yield places()
        return
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("BEDPLATE_LAB_CACHE", str(places().cache))
        patch.setenv("BEDPLATE_LAB", f"{DEFAULT_STATE}-test{os.environ.get('PYTEST_XDIST_WORKER', '')}")
        yield places()


@pytest.fixture(scope="module")
def lab(lab_places: Places, request: pytest.FixtureRequest) -> Iterator[Places]:
    """A lab that is up: four nodes, or as many as the module's LAB_NODES says; ended unless it is kept.

    A kept one has as many as it has.

    Each module has a fresh one: what one does to its nodes is nothing that another finds.
    """
    if os.geteuid() != 0:
        pytest.fail("lab tests need root (leave them out: -m 'not lab')")
    steps = Steps(print)
    kept = os.environ.get("BEDPLATE_LAB_KEEP") == "1"
    if not (kept and lifecycle.status(lab_places).state == "up"):
        lifecycle.up(lab_places, steps, nodes=getattr(request.module, "LAB_NODES", NODES), fresh=True)
    yield lab_places
    if not kept:
        lifecycle.down(lab_places, steps, purge=False)
