"""Persistence mode is on: without it the driver forgets its state between jobs."""

from __future__ import annotations

from collections.abc import Iterator

from bedplate_agent.check import Check, bad, each_gpu
from bedplate_agent.facts import Facts
from bedplate_agent.parse.smi import Gpu
from bedplate_agent.profile import Profile
from bedplate_agent.verdict import CONFIG, WARN, Finding


def judge(facts: Facts, profile: Profile) -> Iterator[Finding]:
    def look(gpu: Gpu) -> Iterator[Finding]:
        if gpu.one_of(("Enabled", "Disabled"), "persistence_mode") != "Enabled":
            yield bad(gpu.name, "persistence mode is off", verdict=WARN, value="Disabled", limit="Enabled")

    yield from each_gpu(facts, profile, look, "persistence mode")


CHECK = Check(
    "gpu.persistence", judge, ("smi",), ("gpu.count",), "nvidia-persistenced is part of every environment", CONFIG,
    "start nvidia-persistenced",
)  # fmt: skip
