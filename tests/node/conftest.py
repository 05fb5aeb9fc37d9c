"""The fixtures of bedplate.observe.nodeplugin; here, so that they stand before testinfra's own `host`."""

from bedplate.observe.nodeplugin import expected, host, observed

__all__ = ["expected", "host", "observed"]
