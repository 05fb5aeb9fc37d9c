"""Settings of every test: a property is about what holds, not about how fast a busy machine is."""

import pytest
from hypothesis import HealthCheck, settings

settings.register_profile("bedplate", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("bedplate")


@pytest.hookimpl(trylast=True)
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Side by side, the longest modules with a lab begin first: the quick ones fill what is left of the time."""
    if hasattr(config, "workerinput"):  # a worker of pytest-xdist
        items.sort(key=_minutes, reverse=True)  # stable: modules stay whole


def _minutes(item: pytest.Item) -> float:
    marked = item.get_closest_marker("lab")
    return float(marked.kwargs["minutes"]) if marked is not None else 0
