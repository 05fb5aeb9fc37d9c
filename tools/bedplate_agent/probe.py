"""A probe: one thing that the node is asked; a raw: what came of it."""

from __future__ import annotations

from typing import NamedTuple

# Stages, in the order in which they are asked. The driver comes last: where it hangs, all else was already read,
# and the kernel log says why it hangs (Azure/azurehpc PR#714).
LOG, SYSFS, SERVICES, SLOW, DRIVER, ACTIVE = "log", "sysfs", "services", "slow", "driver", "active"
STAGES = (LOG, SYSFS, SERVICES, SLOW, DRIVER, ACTIVE)
WIDTH = {LOG: 1, SYSFS: 4, SERVICES: 4, SLOW: 1, DRIVER: 1, ACTIVE: 1}  # nvidia-smi takes turns in the driver anyway

# How a probe ended.
DONE = "done"
LATE = "late"  # past its deadline, and ended by a signal
ABANDONED = "abandoned"  # past its deadline, and not even SIGKILL ended it: stuck in the kernel
SHORT = "short"  # ended before it had had its time: the node had no processor for it, or the run was over
ABSENT = "absent"  # no such program
UNASKED = "unasked"  # another probe says why
STATES = (DONE, LATE, ABANDONED, SHORT, ABSENT, UNASKED)

# Classes of checks and probes.
PASSIVE = "passive"  # safe beside jobs, all of them within 20 s
OUT_OF_BAND = "slow"  # safe beside jobs, but too slow for the others: the BMC
IDLE = "idle"  # no job may run
EXCLUSIVE = "active"  # loads the node: idle, and reserved for it
CLASSES = (PASSIVE, OUT_OF_BAND, IDLE, EXCLUSIVE)


class Probe(NamedTuple):
    """Either argv, or the name of a function of readers.py with its arguments, which runs in a process of its own."""

    id: str
    stage: str
    deadline_s: float
    argv: tuple[str, ...] = ()
    reader: str = ""
    arguments: tuple[str, ...] = ()
    klass: str = PASSIVE
    codes: tuple[int, ...] = (0,)
    """Exit codes with which its output means something; the parser sees only those."""
    foreign: bool = False
    """Its output may hold names in any script; of others it means a locale that nobody asked for."""
    pause_s: float = 0.0
    """How long to wait before: for a second look at something that changes."""


class Raw(NamedTuple):
    """What came of a probe. code: None where there is none; why: for all states but DONE."""

    state: str
    out: str = ""
    err: str = ""
    code: int | None = None
    ms: int = 0
    why: str = ""
