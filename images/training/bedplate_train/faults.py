"""What stops the program, and with which exit status: the submission acts on the status alone."""

from collections.abc import Iterable
from dataclasses import dataclass

FINISHED = 0
FAILED = 1  # look at the log before you submit it again
REFUSED = 2  # the input is wrong: nothing was started
HUNG = 4  # a rank did not come back in time and was ended
STOPPED = 75  # EX_TEMPFAIL of sysexits.h: stopped by a signal or the time limit, checkpoint complete; submit it again


@dataclass(frozen=True)
class Fault:
    """One thing that is wrong: where, what was found, what to do about it."""

    place: str
    found: str
    remedy: str = ""

    def __str__(self) -> str:
        return f"{self.place}: {self.found}" + (f" ({self.remedy})" if self.remedy else "")


class Refused(Exception):
    """An input is wrong; every fault that was found, at once."""

    def __init__(self, faults: Iterable[Fault]) -> None:
        self.faults = tuple(faults)
        super().__init__("\n".join(str(fault) for fault in self.faults))


class Failed(Exception):
    """The run cannot go on; the message says what to look at."""
