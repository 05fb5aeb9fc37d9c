"""The driver is the environment's: the loaded module, the library and what the environment says are one version."""

from __future__ import annotations

import re
from collections.abc import Iterator

from bedplate_agent.check import Check, all_or, bad
from bedplate_agent.facts import Facts
from bedplate_agent.profile import Profile
from bedplate_agent.verdict import CONFIG, ERROR, REBOOT, Finding


def judge(facts: Facts, profile: Profile) -> Iterator[Finding]:
    wanted, files = profile.text("gpu.driver"), facts["gpu_files"]
    match = re.search(r"\s([0-9]+\.[0-9]+(?:\.[0-9]+)?)\s", files.get("proc/driver/nvidia/version", "") + " ")
    found = {
        "loaded module": match[1] if match else "",
        "/sys/module/nvidia": files.get("sys/module/nvidia/version", ""),
        "nvidia-smi": facts["smi"].driver,
    }

    def problems() -> Iterator[Finding]:
        versions = {version for version in found.values() if version}
        if len(versions) > 1:
            yield bad("", f"module and library differ: {', '.join(sorted(versions))}", limit=wanted, action=REBOOT)
        for what, version in found.items():
            if not version:
                yield bad("", f"{what} tells no version", verdict=ERROR, limit=wanted)
            elif version != wanted:
                yield bad("", f"{what} is {version}", value=version, limit=wanted)

    yield from all_or(problems(), f"driver {wanted}", value=wanted)


CHECK = Check("gpu.driver", judge, ("gpu_files", "smi"), ("gpu.driver",), "lock: layer driver", CONFIG)
