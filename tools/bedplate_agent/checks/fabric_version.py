"""Fabric Manager is of the driver's version, to the last digit: it refuses to work with any other."""

from __future__ import annotations

from collections.abc import Iterator

from bedplate_agent.check import Check, all_or, bad
from bedplate_agent.facts import Facts
from bedplate_agent.profile import Profile
from bedplate_agent.verdict import CONFIG, Finding


def judge(facts: Facts, profile: Profile) -> Iterator[Finding]:
    wanted, found = profile.text("gpu.driver"), facts["fabric_version"]
    wrong = [bad("", f"Fabric Manager is {found}", value=found, limit=wanted)] if found != wanted else []
    yield from all_or(wrong, f"Fabric Manager {found}", value=found)


CHECK = Check("fabric.version", judge, ("fabric_version",), ("gpu.driver",), "lock: layer driver", CONFIG)
