"""GPUs are not divided (MIG): training uses whole ones."""

from __future__ import annotations

from collections.abc import Iterator

from bedplate_agent.check import Check, bad, each_gpu
from bedplate_agent.facts import Facts
from bedplate_agent.parse.smi import Gpu
from bedplate_agent.profile import Profile
from bedplate_agent.verdict import CONFIG, REBOOT, Finding


def judge(facts: Facts, profile: Profile) -> Iterator[Finding]:
    wanted = profile.text("gpu.mig")

    def look(gpu: Gpu) -> Iterator[Finding]:
        for when in ("current", "pending"):
            found = gpu.one_of(("Enabled", "Disabled"), f"mig_mode/{when}_mig")
            if found != wanted:
                action = REBOOT if when == "pending" else ""
                yield bad(gpu.name, f"MIG is {found} ({when})", value=found, limit=wanted, action=action)

    yield from each_gpu(facts, profile, look, f"MIG {wanted}")


CHECK = Check("gpu.mig", judge, ("smi",), ("gpu.count", "gpu.mig"), "health profile: gpu.mig", CONFIG)
