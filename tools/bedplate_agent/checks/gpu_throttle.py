"""No GPU is slowed down by heat or power, in two looks a second or more apart."""

from __future__ import annotations

from collections.abc import Iterator

from bedplate_agent.check import Check, bad, each_gpu
from bedplate_agent.facts import Facts
from bedplate_agent.parse.smi import Gpu
from bedplate_agent.profile import Profile
from bedplate_agent.verdict import ERROR, POWER, WARN, WATCH, Finding

# hw_slowdown 0x8, sw_thermal 0x20, hw_thermal 0x40, power_brake 0x80; not idle 0x1, nor the power cap 0x4 of a busy one
_REASONS = ("hw_slowdown", "hw_thermal_slowdown", "hw_power_brake_slowdown", "sw_thermal_slowdown")


def slowed(gpu: Gpu) -> set[str]:
    """The reasons that are active."""
    return {
        reason
        for reason in _REASONS
        if gpu.one_of(
            ("Active", "Not Active"), f"clocks_event_reasons/clocks_event_reason_{reason}",
            f"clocks_throttle_reasons/clocks_throttle_reason_{reason}",
        ) == "Active"
    }  # fmt: skip


def judge(facts: Facts, profile: Profile) -> Iterator[Finding]:
    again = {gpu.bus: gpu for gpu in facts["smi_again"].gpus}

    def look(gpu: Gpu) -> Iterator[Finding]:
        first = slowed(gpu)
        if gpu.bus not in again:
            yield bad(gpu.name, "was gone at the second look", verdict=ERROR)
        elif both := first & slowed(again[gpu.bus]):
            yield bad(gpu.name, f"slowed down: {', '.join(sorted(both))}", value=" ".join(sorted(both)))
        elif once := first | slowed(again[gpu.bus]):
            yield bad(gpu.name, f"slowed down for a moment: {', '.join(sorted(once))}", verdict=WARN, action=WATCH)

    yield from each_gpu(facts, profile, look, "not slowed down")


CHECK = Check(
    "gpu.throttle", judge, ("smi", "smi_again"), ("gpu.count",), "NVML: clocks event reasons 0xE8", POWER,
    "look at cooling and power of the node, then power cycle it",
)  # fmt: skip
