"""All memory is there."""

from __future__ import annotations

import re
from collections.abc import Iterator

from bedplate_agent.check import Check, all_or, bad, held
from bedplate_agent.facts import Facts
from bedplate_agent.parse.text import NotUnderstood
from bedplate_agent.profile import Profile
from bedplate_agent.verdict import RMA, WARN, Finding


def judge(facts: Facts, profile: Profile) -> Iterator[Finding]:
    match = re.fullmatch(r"([0-9]+) kB", facts["host"].need("meminfo/MemTotal"))
    if match is None:
        raise NotUnderstood("MemTotal is no number of kB")
    total = int(match[1]) // 1024
    corrupted = facts["host"].need("meminfo/HardwareCorrupted")

    def problems() -> Iterator[Finding]:
        yield from held(profile, "host.memory", total, "", "memory")
        if corrupted != "0 kB":
            yield bad("", f"{corrupted} of memory taken out of use by the kernel", verdict=WARN, value=corrupted)

    yield from all_or(problems(), f"{total} MiB", value=total)


CHECK = Check(
    "host.memory", judge, ("host",), ("host.memory",), "hardware model: memory_mib; health profile: limits host.memory",
    RMA,
    "reseat or replace the module that is missing",
)  # fmt: skip
