"""Every port is up, active, InfiniBand, and at full rate."""

from __future__ import annotations

import re
from collections.abc import Iterator

from bedplate_agent.check import Check, all_or, bad, held
from bedplate_agent.facts import Facts
from bedplate_agent.profile import Profile
from bedplate_agent.verdict import ERROR, NETWORK, Finding


def judge(facts: Facts, profile: Profile) -> Iterator[Finding]:
    found, wanted = facts["infiniband"].compute, profile.number("ib.count")

    def problems() -> Iterator[Finding]:
        for device in found:
            state, physical = device.values.need("ports/1/state"), device.values.need("ports/1/phys_state")
            if (state, physical) != ("4: ACTIVE", "5: LinkUp"):
                yield bad(
                    device.name,
                    f"port is {state}, {physical}",
                    value=f"{state}/{physical}",
                    limit="4: ACTIVE/5: LinkUp",
                )
                continue
            rate = re.fullmatch(r"([0-9]+(?:\.[0-9]+)?) Gb/sec \(.*\)", device.values.need("ports/1/rate"))
            if rate is None:
                yield bad(device.name, f"rate {device.values.need('ports/1/rate')} is none", verdict=ERROR)
            else:
                yield from held(profile, "ib.rate", float(rate[1]), device.name, "port at")
        if len(found) != wanted:
            yield bad("", f"{len(found)} of {wanted} adapters were there", verdict=ERROR, because="ib.count")

    yield from all_or(problems(), f"{wanted} ports active", value=wanted)


CHECK = Check("ib.state", judge, ("infiniband",), ("ib.count", "ib.rate"), "health profile: limits ib.rate", NETWORK)
