"""DCGM's own watches see nothing."""

from __future__ import annotations

from collections.abc import Iterator

from bedplate_agent.check import Check, all_or, bad
from bedplate_agent.facts import Facts
from bedplate_agent.profile import Profile
from bedplate_agent.verdict import FAIL, RESET, WARN, Finding


def judge(facts: Facts, _: Profile) -> Iterator[Finding]:
    found = facts["dcgm_health"]

    def problems() -> Iterator[Finding]:
        for entity, system, what in found.systems:
            verdict = FAIL if found.overall == "Failure" else WARN
            yield bad(entity.lower().replace(" ", ""), f"{system}: {what[:120]}", verdict=verdict, value=what)
        if found.overall != "Healthy" and not found.systems:
            yield bad("", f"overall {found.overall}", verdict=FAIL, value=found.overall, limit="Healthy")

    yield from all_or(problems(), "Healthy")


CHECK = Check("dcgm.health", judge, ("dcgm_health",), (), "DCGM", RESET)
