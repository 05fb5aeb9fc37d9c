"""Every GPU may use the power that it is bought for."""

from __future__ import annotations

from collections.abc import Iterator

from bedplate_agent.check import Check, each_gpu, held
from bedplate_agent.facts import Facts
from bedplate_agent.parse.smi import Gpu
from bedplate_agent.profile import Profile
from bedplate_agent.verdict import CONFIG, Finding


def judge(facts: Facts, profile: Profile) -> Iterator[Finding]:
    def look(gpu: Gpu) -> Iterator[Finding]:
        limit = gpu.quantity("W", "gpu_power_readings/current_power_limit", "power_readings/power_limit")
        yield from held(profile, "gpu.power_limit", limit, gpu.name, "power limit")

    yield from each_gpu(facts, profile, look, "full power allowed")


CHECK = Check(
    "gpu.power_limit",
    judge,
    ("smi",),
    ("gpu.count", "gpu.power_limit"),
    "health profile: limits gpu.power_limit",
    CONFIG,
)
