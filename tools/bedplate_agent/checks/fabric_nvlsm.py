"""The NVLink subnet manager runs, its module is loaded, and it reaches the NVSwitches."""

from __future__ import annotations

from collections.abc import Iterator

from bedplate_agent.check import Check, all_or, bad
from bedplate_agent.facts import Facts
from bedplate_agent.parse.text import integer
from bedplate_agent.profile import Profile
from bedplate_agent.verdict import CONFIG, POWER, REBOOT, Finding


def judge(facts: Facts, profile: Profile) -> Iterator[Finding]:
    bridges = profile.number("fabric.bridges")
    running = integer(facts["processes"].need("nvlsm"), "nvlsm")
    module, found = facts["modules"].get("ib_umad"), facts["infiniband"].bridges

    def problems() -> Iterator[Finding]:
        # NVIDIA/gpu-operator#2781: without ib_umad Fabric Manager goes the way of older NVSwitches, and all looks well.
        if module is None:
            remedy = "modprobe ib_umad, and name it in /etc/modules-load.d"
            yield bad(
                "ib_umad",
                "the module ib_umad is not loaded",
                value="none",
                limit="ib_umad",
                action=CONFIG,
                remedy=remedy,
            )
        if running != 1:
            yield bad("nvlsm", f"{running} processes nvlsm", value=running, limit=1)
        if len(found) != bridges:
            yield bad("", f"{len(found)} bridges to NVSwitches", value=len(found), limit=bridges, action=POWER)
        for device in found:
            state = device.values.need("ports/1/state")
            if state != "4: ACTIVE":
                yield bad(device.name, f"bridge to an NVSwitch is {state}", value=state, limit="4: ACTIVE")

    yield from all_or(problems(), f"nvlsm runs, {bridges} bridges active", value=bridges)


CHECK = Check(
    "fabric.nvlsm", judge, ("processes", "modules", "infiniband"), ("fabric.bridges",),
    "health profile: fabric.bridges", REBOOT,
)  # fmt: skip
