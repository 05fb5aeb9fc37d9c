"""No memory module has uncorrectable errors, and few correctable ones."""

from __future__ import annotations

from collections.abc import Iterator

from bedplate_agent.check import Check, all_or, bad, held
from bedplate_agent.facts import Facts
from bedplate_agent.parse.text import integer
from bedplate_agent.profile import Profile
from bedplate_agent.verdict import ERROR, RMA, Finding


def judge(facts: Facts, profile: Profile) -> Iterator[Finding]:
    controllers = facts["host"].under("edac")

    def problems() -> Iterator[Finding]:
        if not controllers:
            yield bad("", "the kernel tells no memory controller (EDAC)", verdict=ERROR)
        for name, text in controllers.items():
            count, place = integer(text, name), name.partition("/")[0]
            if name.endswith("ue_count") and count:
                yield bad(place, f"{count} uncorrectable errors", value=count, limit=0)
            elif name.endswith("ce_count"):
                yield from held(profile, "host.edac_correctable", count, place, "correctable errors:")

    yield from all_or(problems(), "no uncorrectable error")


CHECK = Check(
    "host.edac", judge, ("host",), ("host.edac_correctable",), "health profile: limits host.edac_correctable", RMA
)
