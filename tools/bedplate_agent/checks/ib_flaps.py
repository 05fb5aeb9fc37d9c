"""No link goes down again and again: within a day where the node has looked before, else since its boot."""

from __future__ import annotations

import re
from collections.abc import Iterator

from bedplate_agent.check import Check, all_or, bad, held, kernel_log
from bedplate_agent.facts import Facts
from bedplate_agent.parse.infiniband import Device
from bedplate_agent.parse.journal import short_bus
from bedplate_agent.parse.text import number
from bedplate_agent.profile import Profile
from bedplate_agent.verdict import ERROR, NETWORK, Finding

_DOWN = re.compile(r"mlx5_core ([0-9a-f:.]+).*(?:Link DOWN|link down|lost carrier)", re.IGNORECASE)
DAY_S = 86400


def judge(facts: Facts, profile: Profile) -> Iterator[Finding]:
    found, wanted, history = facts["infiniband"].compute, profile.number("ib.count"), facts["history"]
    boot, now = facts["host"].need("boot_id"), number(facts["host"].need("uptime").split()[0], "uptime")
    before = [look for look in history if look.boot_id == boot and now - DAY_S <= look.uptime_s <= now]

    def more(device: Device, counter: str) -> int:
        """What came since the oldest look of the last day."""
        count = device.count(counter)
        first = before[0].counts.get(f"{device.name}.{counter}") if before else None
        return count if first is None or first > count else count - first

    def problems() -> Iterator[Finding]:
        for device in found:
            yield from held(profile, "ib.flaps", more(device, "link_downed"), device.name, "link went down, times:")
            recovered = more(device, "link_error_recovery")
            yield from held(profile, "ib.recoveries", recovered, device.name, "link recovered, times:")
        told: dict[str, int] = {}
        for message in kernel_log(facts, profile).messages:
            if match := _DOWN.search(message.text):
                told[match[1]] = told.get(match[1], 0) + 1
        for address, times in sorted(told.items()):
            yield from held(profile, "ib.flaps", times, short_bus(address), "the kernel saw its link go down, times:")
        if len(found) != wanted:
            yield bad("", f"{len(found)} of {wanted} adapters were there", verdict=ERROR, because="ib.count")

    yield from all_or(problems(), "links stay up")


CHECK = Check(
    "ib.flaps", judge, ("infiniband", "journal", "history", "host"), ("ib.count", "ib.flaps", "ib.recoveries"),
    "health profile: limits ib.flaps, ib.recoveries", NETWORK,
)  # fmt: skip
