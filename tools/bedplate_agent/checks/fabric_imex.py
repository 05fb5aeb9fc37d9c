"""The service for memory across nodes is not half up where it is not used."""

from __future__ import annotations

from collections.abc import Iterator

from bedplate_agent.check import Check, all_or, bad, units
from bedplate_agent.facts import Facts
from bedplate_agent.profile import Profile
from bedplate_agent.verdict import CONFIG, ERROR, WARN, Finding


def judge(facts: Facts, profile: Profile) -> Iterator[Finding]:
    unit = units(facts, profile).get(profile.text("fabric.imex"))

    def problems() -> Iterator[Finding]:
        if unit is None:
            yield bad("", "systemd tells nothing of nvidia-imex", verdict=ERROR)
        elif unit["ActiveState"] == "failed":
            yield bad("", "nvidia-imex failed, and is not used on this model", verdict=WARN, value="failed")

    yield from all_or(problems(), "nvidia-imex is not failing")


CHECK = Check(
    "fabric.imex", judge, ("units",), ("fabric.imex", "services.units"), "health profile: fabric.imex", CONFIG,
    "disable nvidia-imex",
)  # fmt: skip
