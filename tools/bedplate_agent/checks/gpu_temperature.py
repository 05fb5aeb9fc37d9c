"""GPUs and their memory are not near the temperature at which they slow down."""

from __future__ import annotations

from collections.abc import Iterator

from bedplate_agent.check import Check, each_gpu, held
from bedplate_agent.facts import Facts
from bedplate_agent.parse.smi import Gpu
from bedplate_agent.profile import Profile
from bedplate_agent.verdict import WATCH, Finding


def judge(facts: Facts, profile: Profile) -> Iterator[Finding]:
    margins: list[float] = []

    def look(gpu: Gpu) -> Iterator[Finding]:
        margin = gpu.quantity("C", "temperature/gpu_temp_tlimit")
        margins.append(margin)
        yield from held(profile, "gpu.temperature_margin", margin, gpu.name, "margin to the slowdown temperature")
        memory = gpu.quantity("C", "temperature/memory_temp")
        yield from held(profile, "gpu.memory_temperature", memory, gpu.name, "memory at")

    yield from each_gpu(facts, profile, look, "temperatures in range", value=lambda: f"{min(margins):g}", unit="C")


CHECK = Check(
    "gpu.temperature", judge, ("smi",), ("gpu.count", "gpu.temperature_margin", "gpu.memory_temperature"),
    "health profile: limits gpu.temperature_margin, gpu.memory_temperature", WATCH,
    "look at fans and inlet temperature",
)  # fmt: skip
