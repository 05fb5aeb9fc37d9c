"""All processors are online, at full speed, and belong to the memory that the machine has."""

from __future__ import annotations

from collections.abc import Iterator

from bedplate_agent.check import Check, all_or, bad
from bedplate_agent.facts import Facts
from bedplate_agent.parse.text import integer
from bedplate_agent.profile import Profile
from bedplate_agent.verdict import CONFIG, ERROR, REBOOT, WARN, Finding


def _count(text: str) -> int:
    total = 0
    for part in text.split(","):
        first, _, last = part.partition("-")
        total += integer(last or first, "processors") - integer(first, "processors") + 1
    return total


def judge(facts: Facts, profile: Profile) -> Iterator[Finding]:
    host, wanted = facts["host"], profile.number("cpu.threads")
    online, present = _count(host.need("cpu/online")), _count(host.need("cpu/present"))
    nodes, numa = _count(host.need("numa/online")), profile.number("cpu.numa_nodes")
    governors, governor = host.under("governor"), profile.text("cpu.governor")

    def problems() -> Iterator[Finding]:
        if online != present:
            yield bad("", f"{online} of {present} processors are online", value=online, limit=present)
        if present != wanted:
            yield bad("", f"{present} processors", value=present, limit=wanted, action=CONFIG)
        if nodes != numa:
            yield bad("", f"{nodes} NUMA nodes", value=nodes, limit=numa, action=CONFIG)
        for name, count in governors.items():
            if name != governor:
                message = f"{count} processors with the governor {name}"
                yield bad("", message, verdict=WARN, value=name, limit=governor, action=CONFIG)
        if not governors:
            yield bad("", "no governor is told", verdict=ERROR)

    yield from all_or(problems(), f"{wanted} processors, {governor}", value=online)


CHECK = Check(
    "host.cpu", judge, ("host",), ("cpu.threads", "cpu.numa_nodes", "cpu.governor"),
    "hardware model: cpu; health profile: cpu.numa_nodes, cpu.governor", REBOOT,
)  # fmt: skip
