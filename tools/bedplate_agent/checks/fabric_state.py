"""Every GPU has joined the NVLink fabric: all of them, since one alone shows nothing."""

from __future__ import annotations

from collections.abc import Iterator

from bedplate_agent.check import Check, bad, each_gpu
from bedplate_agent.facts import Facts
from bedplate_agent.parse.smi import Gpu
from bedplate_agent.parse.text import number
from bedplate_agent.profile import Profile
from bedplate_agent.verdict import ERROR, RESET, Finding

_STATES = ("Completed", "In Progress", "Not Started")
_HEALTHY = ("Healthy", "N/A", "Not Supported")


def judge(facts: Facts, profile: Profile) -> Iterator[Finding]:
    grace = profile.number("fabric.grace_s")
    uptime = number(facts["host"].need("uptime").split()[0], "uptime")

    def look(gpu: Gpu) -> Iterator[Finding]:
        state, status = gpu.one_of(_STATES, "fabric/state"), dict(gpu.leaves()).get("fabric/status", "")
        if state == "In Progress" and uptime < grace:
            yield bad(gpu.name, f"fabric In Progress, {uptime:.0f} s after boot", verdict=ERROR, value=state)
        elif (state, status) != ("Completed", "Success"):
            yield bad(gpu.name, f"fabric {state}, {status}", value=f"{state}/{status}", limit="Completed/Success")
        if gpu.has("fabric/health/summary"):
            health = gpu.said("fabric/health/summary")
            if health not in _HEALTHY:
                yield bad(gpu.name, f"fabric health {health}", value=health, limit="Healthy")

    yield from each_gpu(facts, profile, look, "fabric Completed, Success")


CHECK = Check(
    "fabric.state", judge, ("smi", "host"), ("gpu.count", "fabric.grace_s"),
    "health profile: fabric.grace_s; NVIDIA Fabric Manager user guide", RESET,
    "restart Fabric Manager after a reset of all GPUs; then reboot",
)  # fmt: skip
