"""The driver can read every field of every GPU."""

from __future__ import annotations

from collections.abc import Iterator

from bedplate_agent.check import Check, bad, each_gpu
from bedplate_agent.facts import Facts
from bedplate_agent.parse.smi import BROKEN, Gpu
from bedplate_agent.profile import Profile
from bedplate_agent.verdict import POWER, RESET, Finding


def judge(facts: Facts, profile: Profile) -> Iterator[Finding]:
    def look(gpu: Gpu) -> Iterator[Finding]:
        broken = [
            (path, value) for path, value in gpu.leaves() if value.startswith(BROKEN) and not path.startswith("fabric/")
        ]
        if broken:
            path, value = broken[0]
            more = f" and {len(broken) - 1} more" if len(broken) > 1 else ""
            action = POWER if any("lost" in said for _, said in broken) else ""
            yield bad(gpu.name, f'"{value}" in {path}{more}', value=value, action=action)

    yield from each_gpu(facts, profile, look, "every field readable")


CHECK = Check(
    "gpu.reads", judge, ("smi",), ("gpu.count",), "a field that the driver cannot read is a fault of the GPU", RESET
)
