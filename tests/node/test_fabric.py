"""Fabric Manager runs, where the lock has it."""

from typing import Any

import pytest

from bedplate.observe.expectation import Expectation


@pytest.mark.layer("fabric")
def test_fabric_manager_runs(node: str, host: Any, expected: Expectation) -> None:
    if "fabric" in expected.unmanaged:
        pytest.skip(f"unmanaged: {expected.unmanaged['fabric']}")
    if not any(name.startswith("nvidia-fabricmanager") for name in expected.packages):
        pytest.skip("the lock has no Fabric Manager")
    service = host.service("nvidia-fabricmanager")
    assert service.is_running, "nvidia-fabricmanager.service does not run"
    assert service.is_enabled, "nvidia-fabricmanager.service is not enabled: a reboot would lose it"
