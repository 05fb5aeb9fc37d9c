"""Several processes may use a GPU: exclusive and prohibited modes break containers and NCCL."""

from __future__ import annotations

from collections.abc import Iterator

from bedplate_agent.check import Check, bad, each_gpu
from bedplate_agent.facts import Facts
from bedplate_agent.parse.smi import Gpu
from bedplate_agent.profile import Profile
from bedplate_agent.verdict import CONFIG, Finding


def judge(facts: Facts, profile: Profile) -> Iterator[Finding]:
    wanted = profile.text("gpu.compute_mode")

    def look(gpu: Gpu) -> Iterator[Finding]:
        found = gpu.one_of(("Default", "Exclusive_Process", "Exclusive_Thread", "Prohibited"), "compute_mode")
        if found != wanted:
            yield bad(gpu.name, f"compute mode {found}", value=found, limit=wanted)

    yield from each_gpu(facts, profile, look, f"compute mode {wanted}")


CHECK = Check(
    "gpu.compute_mode", judge, ("smi",), ("gpu.count", "gpu.compute_mode"), "health profile: gpu.compute_mode", CONFIG
)
