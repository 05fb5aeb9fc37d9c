"""Door to bedplate.doors.soak."""

from bedplate.doors.soak import ActionModule

__all__ = ["ActionModule"]
