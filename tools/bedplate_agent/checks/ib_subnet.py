"""Every port has its address from a subnet manager, and is in the partition."""

from __future__ import annotations

import re
from collections.abc import Iterator

from bedplate_agent.check import Check, all_or, bad
from bedplate_agent.facts import Facts
from bedplate_agent.profile import Profile
from bedplate_agent.verdict import ERROR, NETWORK, Finding


def judge(facts: Facts, profile: Profile) -> Iterator[Finding]:
    found, wanted = facts["infiniband"].compute, profile.number("ib.count")
    pkeys = profile.words("ib.pkeys")

    def problems() -> Iterator[Finding]:
        for device in found:
            for name, what in (("lid", "its own address (lid)"), ("sm_lid", "a subnet manager (sm_lid)")):
                value = device.values.need(f"ports/1/{name}")
                if not re.fullmatch(r"0x[0-9a-f]+", value):
                    yield bad(device.name, f"{name} is {value}", verdict=ERROR, value=value)
                elif int(value, 16) == 0:
                    yield bad(device.name, f"has not {what}", value=value)
            pkey = device.values.need("ports/1/pkeys/0")
            if pkey not in pkeys:
                yield bad(device.name, f"partition key {pkey}", value=pkey, limit=" ".join(pkeys))
        if len(found) != wanted:
            yield bad("", f"{len(found)} of {wanted} adapters were there", verdict=ERROR, because="ib.count")

    yield from all_or(problems(), f"{wanted} ports in the subnet", value=wanted)


CHECK = Check("ib.subnet", judge, ("infiniband",), ("ib.count", "ib.pkeys"), "health profile: ib.pkeys", NETWORK)
