"""Why the program ends, as exit codes (those of sysexits and errno where there is one)."""

from __future__ import annotations

NO_SPACE = 28
OTHER_BYTES = 74
BUSY = 75
MISSING = 69  # a program or a file that this way needs is not here
STOPPED = 76  # told to end before it was done; what there is stays
FAULT = 70


class Failed(Exception):
    """What is wrong, and the exit code."""

    def __init__(self, code: int, why: str) -> None:
        super().__init__(why)
        self.code = code
