"""Every GPU can read and write the memory of every other one."""

from __future__ import annotations

from collections.abc import Iterator

from bedplate_agent.check import Check, all_or, bad
from bedplate_agent.facts import Facts
from bedplate_agent.probe import IDLE
from bedplate_agent.profile import Profile
from bedplate_agent.verdict import RESET, Finding


def judge(facts: Facts, profile: Profile) -> Iterator[Finding]:
    gpus, cells = profile.number("gpu.count"), facts["p2p"]
    rows = {row for row, _ in cells}

    def problems() -> Iterator[Finding]:
        if len(rows) != gpus:
            yield bad("", f"{len(rows)} GPUs are told", value=len(rows), limit=gpus)
        for (row, column), cell in sorted(cells.items()):
            if row != column and cell != "OK":
                yield bad(f"gpu{row}", f"cannot reach gpu{column}: {cell}", value=cell, limit="OK")

    yield from all_or(problems(), f"{gpus} GPUs reach each other")


CHECK = Check("fabric.p2p", judge, ("p2p",), ("gpu.count",), "hardware model: gpus", RESET, klass=IDLE)
