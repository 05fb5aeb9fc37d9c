"""No process uses a GPU while no job runs."""

from __future__ import annotations

from collections.abc import Iterator

from bedplate_agent.check import Check, all_or, bad
from bedplate_agent.facts import Facts
from bedplate_agent.probe import IDLE
from bedplate_agent.profile import Profile
from bedplate_agent.verdict import CONFIG, Finding


def judge(facts: Facts, _: Profile) -> Iterator[Finding]:
    found = facts["smi"].processes
    yield from all_or((bad(p.split()[0], f"in use by {p}", value=p) for p in found), "no process on any GPU")


CHECK = Check(
    "gpu.processes",
    judge,
    ("smi",),
    (),
    "an idle node has no GPU process",
    CONFIG,
    "end the process; REBOOT if it cannot be ended",
    klass=IDLE,
)
