"""Every service of the environment runs."""

from __future__ import annotations

from collections.abc import Iterator

from bedplate_agent.check import Check, all_or, bad, units
from bedplate_agent.facts import Facts
from bedplate_agent.profile import Profile
from bedplate_agent.verdict import CONFIG, ERROR, Finding


def judge(facts: Facts, profile: Profile) -> Iterator[Finding]:
    wanted, told = profile.words("services.active"), units(facts, profile)

    def problems() -> Iterator[Finding]:
        for name in wanted:
            unit = told.get(name)
            if unit is None:
                yield bad(name, "systemd tells nothing of it", verdict=ERROR)
            elif unit["LoadState"] != "loaded":
                yield bad(name, f"is {unit['LoadState']}", value=unit["LoadState"], limit="loaded")
            elif unit["ActiveState"] != "active":
                state = f"{unit['ActiveState']}/{unit['SubState']}"
                yield bad(name, f"is {state} ({unit.get('Result', '')})", value=state, limit="active")

    yield from all_or(problems(), f"{len(wanted)} services run", value=len(wanted))


CHECK = Check(
    "host.services", judge, ("units",), ("services.active", "services.units"),
    "lock: packages of the environment; roles: units in role.yml", CONFIG, "read journalctl -u UNIT",
)  # fmt: skip
