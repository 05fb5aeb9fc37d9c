"""Door to bedplate.doors.same."""

from bedplate.doors.same import ActionModule

__all__ = ["ActionModule"]
