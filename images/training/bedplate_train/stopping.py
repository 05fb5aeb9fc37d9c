"""When a run ends early: a signal, or the end of its time. All ranks must agree on the step."""

import ctypes
import os
import signal
import time
from typing import Any

SIGNALS = (signal.SIGTERM, signal.SIGUSR1, signal.SIGUSR2, signal.SIGINT)

_PR_SET_PDEATHSIG = 1  # linux/prctl.h

_asked: list[str] = []


def listen() -> None:
    """From here on a signal asks for an end with a checkpoint. First thing of a process: imports take seconds."""
    for number in SIGNALS:
        signal.signal(number, _heard)


def end_with_parent(number: int = signal.SIGKILL) -> None:
    """This process gets the signal when the one that started it dies.

    torchrun puts ranks in sessions of their own: without it they would go on without anybody, on GPUs and in
    checkpoints that the next attempt uses.
    """
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.prctl(_PR_SET_PDEATHSIG, int(number)) != 0:
        raise OSError(ctypes.get_errno(), "prctl(PR_SET_PDEATHSIG)")


def _heard(number: int, _frame: Any) -> None:
    _asked.append(signal.Signals(number).name)


def asked() -> str:
    """The first signal that came; empty if none."""
    return _asked[0] if _asked else ""


def forget() -> None:
    _asked.clear()


class Deadline:
    """The time by which the process must be gone, less what a checkpoint and a step need.

    `BEDPLATE_TRAIN_STARTED` is when the launcher began; `SLURM_JOB_END_TIME` is Slurm's, seconds since 1970.
    """

    def __init__(self, after_s: float | None, margin_s: float, environment: dict[str, str] | None = None) -> None:
        given = dict(os.environ) if environment is None else environment
        ends = []
        if after_s is not None:
            ends.append(float(given.get("BEDPLATE_TRAIN_STARTED") or time.time()) + after_s)
        if given.get("SLURM_JOB_END_TIME", "").isdigit():
            ends.append(float(given["SLURM_JOB_END_TIME"]))
        self.end = min(ends) if ends else None
        self.margin_s = margin_s
        self.save_s = 0.0  # the longest save so far
        self.step_s = 0.0  # the longest step so far

    def near(self, now: float | None = None) -> bool:
        if self.end is None:
            return False
        left = self.end - (time.time() if now is None else now)
        return left < max(self.margin_s, 2 * self.save_s) + self.step_s
