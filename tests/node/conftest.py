"""The fixtures of bedplate.observe.nodeplugin; here, so that they stand before testinfra's own `host`."""

from typing import Any

import pytest

from bedplate.observe.expectation import Expectation
from bedplate.observe.hostlayers import HostLayers, look_layers
from bedplate.observe.nodeplugin import expected, host, observed

__all__ = ["expected", "host", "layers", "observed"]


@pytest.fixture(scope="session")
def layers(host: Any, expected: Expectation) -> HostLayers:
    """What the node's host layers show, asked once."""
    return look_layers(host.run, expected)
