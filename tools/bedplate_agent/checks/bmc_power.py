"""Every power supply is there and delivers."""

from __future__ import annotations

import re
from collections.abc import Iterator

from bedplate_agent.check import Check, all_or, bad
from bedplate_agent.facts import Facts
from bedplate_agent.probe import OUT_OF_BAND
from bedplate_agent.profile import Profile
from bedplate_agent.verdict import RMA, Finding


def judge(facts: Facts, profile: Profile) -> Iterator[Finding]:
    wanted, sensors = profile.number("bmc.supplies"), facts["bmc_sensors"]
    supplies = [sensor for sensor in sensors if sensor.status != "ns"]

    def problems() -> Iterator[Finding]:
        for sensor in supplies:
            if sensor.status != "ok" or re.search(r"[Ff]ail|lost|[Pp]redictive", sensor.value):
                yield bad(sensor.name, f"{sensor.status}, {sensor.value}", value=sensor.value)
        if len(supplies) != wanted:
            yield bad("", f"{len(supplies)} power supplies", value=len(supplies), limit=wanted)

    yield from all_or(problems(), f"{wanted} power supplies", value=wanted)


CHECK = Check(
    "bmc.power", judge, ("bmc_sensors",), ("bmc.supplies",), "health profile: bmc.supplies", RMA,
    "replace the power supply, or its feed", klass=OUT_OF_BAND,
)  # fmt: skip
