"""Every GPU has a VBIOS that is known to be good, and all have the same."""

from __future__ import annotations

from collections.abc import Iterator

from bedplate_agent.check import Check, bad, each_gpu
from bedplate_agent.facts import Facts
from bedplate_agent.parse.smi import Gpu
from bedplate_agent.profile import Profile
from bedplate_agent.verdict import CONFIG, WARN, Finding


def judge(facts: Facts, profile: Profile) -> Iterator[Finding]:
    known = profile.words("gpu.vbios")
    seen: set[str] = set()

    def look(gpu: Gpu) -> Iterator[Finding]:
        found = gpu.text("vbios_version")
        seen.add(found)
        if found not in known:
            yield bad(gpu.name, f"VBIOS {found}", value=found, limit=" ".join(known))
        elif len(seen) > 1:
            yield bad(gpu.name, f"VBIOS {found}, others have {min(seen - {found})}", verdict=WARN, value=found)

    yield from each_gpu(facts, profile, look, "one VBIOS")


CHECK = Check("gpu.vbios", judge, ("smi",), ("gpu.count", "gpu.vbios"), "health profile: gpu.vbios", CONFIG)
