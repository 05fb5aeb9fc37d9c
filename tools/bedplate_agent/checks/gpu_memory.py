"""Every GPU shows all of its memory."""

from __future__ import annotations

from collections.abc import Iterator

from bedplate_agent.check import Check, each_gpu, held
from bedplate_agent.facts import Facts
from bedplate_agent.parse.smi import Gpu
from bedplate_agent.profile import Profile
from bedplate_agent.verdict import RMA, Finding


def judge(facts: Facts, profile: Profile) -> Iterator[Finding]:
    def look(gpu: Gpu) -> Iterator[Finding]:
        total = gpu.quantity("MiB", "fb_memory_usage/total")
        yield from held(profile, "gpu.memory", total, gpu.name, "memory")

    yield from each_gpu(facts, profile, look, "all memory there")


CHECK = Check("gpu.memory", judge, ("smi",), ("gpu.count", "gpu.memory"), "health profile: limits gpu.memory", RMA)
