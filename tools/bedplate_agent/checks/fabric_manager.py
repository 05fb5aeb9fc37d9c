"""Fabric Manager runs, has not been restarted by itself, and is of the environment."""

from __future__ import annotations

from collections.abc import Iterator

from bedplate_agent.check import Check, all_or, bad, units
from bedplate_agent.facts import Facts
from bedplate_agent.parse.text import integer
from bedplate_agent.profile import Profile
from bedplate_agent.verdict import CONFIG, ERROR, REBOOT, WARN, WATCH, Finding


def judge(facts: Facts, profile: Profile) -> Iterator[Finding]:
    name = profile.text("fabric.unit")
    unit = units(facts, profile).get(name)

    def problems() -> Iterator[Finding]:
        if unit is None:
            yield bad("", f"systemd tells nothing of {name}", verdict=ERROR)
        elif unit["LoadState"] != "loaded":
            yield bad("", f"{name} is {unit['LoadState']}", value=unit["LoadState"], limit="loaded", action=CONFIG)
        elif (unit["ActiveState"], unit["SubState"]) != ("active", "running"):
            state = f"{unit['ActiveState']}/{unit['SubState']}"
            yield bad("", f"{name} is {state} ({unit['Result']})", value=state, limit="active/running")
        elif restarts := integer(unit["NRestarts"], "NRestarts"):
            yield bad("", f"{name} was restarted {restarts} times", verdict=WARN, value=restarts, limit=0, action=WATCH)

    yield from all_or(problems(), f"{name} runs")


CHECK = Check(
    "fabric.manager", judge, ("units",), ("fabric.unit", "services.units"),
    "lock: layer fabric; health profile: fabric.unit",
    REBOOT,
    "read journalctl -u nvidia-fabricmanager: a module that is missing, or a version that is not the driver's",
)  # fmt: skip
