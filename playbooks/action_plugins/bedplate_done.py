"""Door to bedplate.doors.done."""

from bedplate.doors.done import ActionModule

__all__ = ["ActionModule"]
