"""What can be wrong, and what the caller does next: one exception class per exit code.

0 good, 1 internal fault, 2 bad input, 3 refused for safety or stopped by policy,
4 a node failed, unreachable or unknown, 5 differences found, 6 busy.
"""

from collections.abc import Iterable
from dataclasses import asdict, dataclass
from typing import ClassVar


@dataclass(frozen=True, order=True)
class Fault:
    """One thing wrong in one place: where, what was found, what to do next."""

    file: str
    line: int | None
    found: str
    remedy: str = ""

    def __str__(self) -> str:
        place = self.file if self.line is None else f"{self.file}:{self.line}"
        return f"{place}: {self.found}" + (f" ({self.remedy})" if self.remedy else "")

    def as_dict(self) -> dict[str, object]:
        return asdict(self)


class BedplateError(Exception):
    """An error with a message for a person; every other exception is an internal fault."""

    exit_code: ClassVar[int] = 1


class BadInput(BedplateError):
    """An input is wrong: correct it. Carries every fault that was found, not the first one."""

    exit_code = 2

    def __init__(self, faults: Iterable[Fault] | str) -> None:
        self.faults = (
            [] if isinstance(faults, str) else sorted(set(faults), key=lambda f: (f.file, f.line or 0, f.found))
        )
        super().__init__(faults if isinstance(faults, str) else "\n".join(map(str, self.faults)))


class Refused(BedplateError):
    """Refused for safety, or stopped by policy: needs a decision, or another state of the fleet."""

    exit_code = 3


class NodesFailed(BedplateError):
    """A node failed, could not be reached, or its state is unknown."""

    exit_code = 4


class DifferencesFound(BedplateError):
    """What was compared differs."""

    exit_code = 5


class Busy(BedplateError):
    """Somebody else is at it: wait, or look who."""

    exit_code = 6
