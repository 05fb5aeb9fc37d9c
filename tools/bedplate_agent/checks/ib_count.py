"""Every InfiniBand adapter is there; bridges of NVSwitches and Ethernet are not counted."""

from __future__ import annotations

from collections.abc import Iterator

from bedplate_agent.check import Check, all_or, bad
from bedplate_agent.facts import Facts
from bedplate_agent.profile import Profile
from bedplate_agent.verdict import POWER, Finding


def judge(facts: Facts, profile: Profile) -> Iterator[Finding]:
    wanted, found = profile.number("ib.count"), facts["infiniband"].compute
    names = ", ".join(device.name for device in found)
    wrong = [bad("", f"{len(found)} adapters: {names or 'none'}", value=len(found), limit=wanted)]
    yield from all_or(wrong if len(found) != wanted else [], f"{wanted} adapters", value=wanted)


CHECK = Check("ib.count", judge, ("infiniband",), ("ib.count",), "hardware model: nics", POWER)
