"""Door to bedplate.doors.healthy."""

from bedplate.doors.healthy import ActionModule

__all__ = ["ActionModule"]
