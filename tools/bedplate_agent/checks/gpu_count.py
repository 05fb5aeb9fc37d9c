"""The driver, /proc and /dev agree on how many GPUs there are, and no two have one UUID."""

from __future__ import annotations

import re
from collections.abc import Iterator

from bedplate_agent.check import Check, all_or, bad
from bedplate_agent.facts import Facts
from bedplate_agent.profile import Profile
from bedplate_agent.verdict import REBOOT, RMA, Finding


def judge(facts: Facts, profile: Profile) -> Iterator[Finding]:
    wanted, files, smi = profile.number("gpu.count"), facts["gpu_files"], facts["smi"]
    driver = [gpu.said("uuid") if gpu.has("uuid") else "" for gpu in smi.gpus]
    shown = sorted({key.partition("/")[0] for key in files.under("proc") if not key.startswith("driver/")})
    devices = [
        key for key, kind in files.under("dev").items() if re.fullmatch(r"nvidia[0-9]+", key) and kind == "character"
    ]
    kernel = [value for key, value in files.under("proc").items() if key.endswith("/GPU UUID")]

    def problems() -> Iterator[Finding]:
        for what, count in (
            ("nvidia-smi", len(driver)),
            ("/proc/driver/nvidia/gpus", len(shown)),
            ("/dev/nvidia*", len(devices)),
        ):
            if count != wanted:
                yield bad("", f"{what} has {count} GPUs", value=count, limit=wanted)
        if len(set(driver)) != len(driver):
            yield bad("", "two GPUs have one UUID", value=len(set(driver)), limit=wanted, action=RMA)
        if unknown := [uuid for uuid in kernel if "?" in uuid]:
            yield bad("", f"{len(unknown)} GPUs tell the kernel no UUID", value=len(unknown), limit=0)
        elif set(kernel) != set(driver) and len(shown) == wanted == len(driver):
            yield bad(
                "", "nvidia-smi and /proc/driver/nvidia/gpus have other UUIDs", value=len(set(kernel) ^ set(driver))
            )

    yield from all_or(problems(), f"{wanted} GPUs in nvidia-smi, /proc and /dev", value=wanted)


CHECK = Check("gpu.count", judge, ("gpu_files", "smi"), ("gpu.count",), "hardware model: gpus", REBOOT)
