"""No link goes down again and again."""

from __future__ import annotations

import re
from collections.abc import Iterator

from bedplate_agent.check import Check, all_or, bad, held
from bedplate_agent.facts import Facts
from bedplate_agent.parse.journal import short_bus
from bedplate_agent.profile import Profile
from bedplate_agent.verdict import ERROR, NETWORK, Finding

_DOWN = re.compile(r"mlx5_core ([0-9a-f:.]+).*(?:Link DOWN|link down|lost carrier)", re.IGNORECASE)


def judge(facts: Facts, profile: Profile) -> Iterator[Finding]:
    found, wanted = facts["infiniband"].compute, profile.number("ib.count")
    told: dict[str, int] = {}
    for message in facts["journal"].messages:
        if match := _DOWN.search(message.text):
            told[match[1]] = told.get(match[1], 0) + 1

    def problems() -> Iterator[Finding]:
        for device in found:
            yield from held(profile, "ib.flaps", device.count("link_downed"), device.name, "link went down, times:")
            recovered = device.count("link_error_recovery")
            yield from held(profile, "ib.recoveries", recovered, device.name, "link recovered, times:")
        for address, times in sorted(told.items()):
            yield from held(profile, "ib.flaps", times, short_bus(address), "the kernel saw its link go down, times:")
        if len(found) != wanted:
            yield bad("", f"{len(found)} of {wanted} adapters were there", verdict=ERROR, because="ib.count")

    yield from all_or(problems(), "links stay up")


CHECK = Check(
    "ib.flaps", judge, ("infiniband", "journal"), ("ib.count", "ib.flaps", "ib.recoveries"),
    "health profile: limits ib.flaps, ib.recoveries", NETWORK,
)  # fmt: skip
