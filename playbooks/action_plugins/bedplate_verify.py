"""Door to bedplate.doors.verify."""

from bedplate.doors.verify import ActionModule

__all__ = ["ActionModule"]
