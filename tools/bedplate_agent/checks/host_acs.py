"""No PCIe switch redirects what GPUs and adapters send each other (ACS)."""

from __future__ import annotations

import re
from collections.abc import Iterator

from bedplate_agent.check import Check, all_or, bad
from bedplate_agent.facts import Facts
from bedplate_agent.profile import Profile
from bedplate_agent.verdict import CONFIG, ERROR, Finding

_REDIRECTS = 0b1100  # ReqRedir, CmpltRedir


def judge(facts: Facts, profile: Profile) -> Iterator[Finding]:
    least, found = profile.number("host.acs_bridges"), facts["acs"]

    def problems() -> Iterator[Finding]:
        if len(found) < least:
            yield bad("", f"{len(found)} bridges with ACS were read", verdict=ERROR, value=len(found), limit=least)
        for address, control in found.items():
            if not re.fullmatch(r"0x[0-9a-f]{4}", control):
                yield bad(address, control, verdict=ERROR)
            elif int(control, 16) & _REDIRECTS:
                yield bad(address, "redirects peer traffic (ACS)", value=control, limit="0x0000")

    yield from all_or(problems(), f"{len(found)} bridges redirect nothing", value=len(found))


CHECK = Check(
    "host.acs", judge, ("acs",), ("host.acs_bridges",), "health profile: host.acs_bridges", CONFIG,
    "switch ACS off in the BIOS, or with setpci at boot",
)  # fmt: skip
