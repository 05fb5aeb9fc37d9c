"""Door to bedplate.doors.gate."""

from bedplate.doors.gate import ActionModule

__all__ = ["ActionModule"]
