"""The product's action, beside nodes that answer as the scenario says instead of over ssh."""

from ansible.plugins.loader import connection_loader

from bedplate.doors import same as door
from bedplate.doors.same import ActionModule

__all__ = ["ActionModule"]

door.ask_digests = connection_loader.get("sim", class_only=True).digests  # type: ignore[attr-defined]
