"""Door to bedplate.doors.accept."""

from bedplate.doors.accept import ActionModule

__all__ = ["ActionModule"]
