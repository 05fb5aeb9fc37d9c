"""No process hangs in the kernel, and there is room for more."""

from __future__ import annotations

from collections.abc import Iterator

from bedplate_agent.check import Check, all_or, bad, held
from bedplate_agent.facts import Facts
from bedplate_agent.parse.text import integer
from bedplate_agent.profile import Profile
from bedplate_agent.verdict import WARN, WATCH, Finding


def judge(facts: Facts, profile: Profile) -> Iterator[Finding]:
    found = facts["processes"]
    waiting = found.under("waiting")

    def problems() -> Iterator[Finding]:
        if waiting:
            first = min(waiting)
            message = f"{len(waiting)} processes wait in the kernel, one is {waiting[first]} ({first})"
            yield bad("", message, verdict=WARN, value=len(waiting), limit=0)
        yield from held(profile, "host.zombies", integer(found.need("zombies"), "zombies"), "", "zombies:")
        total, most = integer(found.need("total"), "total"), integer(found.need("pid_max"), "pid_max")
        yield from held(profile, "host.pids", 100 * total / max(most, 1), "", "process ids in use:")

    yield from all_or(problems(), "no process hangs", value=found["total"])


CHECK = Check(
    "host.processes", judge, ("processes",), ("host.zombies", "host.pids"),
    "health profile: limits host.zombies, host.pids", WATCH, "a process that hangs for long: reboot",
)  # fmt: skip
