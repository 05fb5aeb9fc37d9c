"""ECC is on, now and after the next reset."""

from __future__ import annotations

from collections.abc import Iterator

from bedplate_agent.check import Check, bad, each_gpu
from bedplate_agent.facts import Facts
from bedplate_agent.parse.smi import Gpu
from bedplate_agent.profile import Profile
from bedplate_agent.verdict import CONFIG, REBOOT, Finding


def judge(facts: Facts, profile: Profile) -> Iterator[Finding]:
    def look(gpu: Gpu) -> Iterator[Finding]:
        now, then = (gpu.one_of(("Enabled", "Disabled"), f"ecc_mode/{when}_ecc") for when in ("current", "pending"))
        if (now, then) != ("Enabled", "Enabled"):
            action = "" if now == then else REBOOT
            yield bad(gpu.name, f"ECC is {now}, pending {then}", value=now, limit="Enabled", action=action)

    yield from each_gpu(facts, profile, look, "ECC on")


CHECK = Check(
    "gpu.ecc_mode", judge, ("smi",), ("gpu.count",), "training without ECC is not trusted on any model", CONFIG
)
