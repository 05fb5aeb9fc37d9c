"""Door to bedplate.doors.filters."""

from bedplate.doors.filters import FilterModule

__all__ = ["FilterModule"]
