"""The clock follows its servers, and is right."""

from __future__ import annotations

from collections.abc import Iterator

from bedplate_agent.check import Check, all_or, bad, held
from bedplate_agent.facts import Facts
from bedplate_agent.profile import Profile
from bedplate_agent.verdict import CONFIG, Finding


def judge(facts: Facts, profile: Profile) -> Iterator[Finding]:
    found = facts["time"]

    def problems() -> Iterator[Finding]:
        if found.leap == "Not synchronised" or found.stratum == 0:
            yield bad("", f"the clock follows no server ({found.leap}, stratum {found.stratum})", value=found.leap)
        else:
            yield from held(profile, "time.stratum", found.stratum, "", "stratum")
        yield from held(profile, "time.offset", abs(found.offset_s) * 1000, "", "the clock is off by")
        yield from held(profile, "time.dispersion", found.dispersion_s * 1000, "", "the clock may be off by")

    yield from all_or(problems(), f"{abs(found.offset_s) * 1000:g} ms off", value=f"{abs(found.offset_s) * 1000:g}")


CHECK = Check(
    "host.time", judge, ("time",), ("time.stratum", "time.offset", "time.dispersion"),
    "health profile: limits time.stratum, time.offset, time.dispersion", CONFIG, "look at chronyd and its servers",
)  # fmt: skip
