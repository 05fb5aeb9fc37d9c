"""Door to bedplate.doors.accounts."""

from bedplate.doors.accounts import ActionModule

__all__ = ["ActionModule"]
