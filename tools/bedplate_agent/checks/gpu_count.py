"""Driver, /proc and /dev agree on how many GPUs there are, no two have one UUID, and CUDA has its own device file."""

from __future__ import annotations

import re
from collections.abc import Iterator

from bedplate_agent.check import Check, all_or, bad
from bedplate_agent.facts import Facts
from bedplate_agent.profile import Profile
from bedplate_agent.verdict import CONFIG, REBOOT, RMA, Finding

UVM = "nvidia-uvm"
# restart: the unit stays active once it has run, and `start` would do nothing. What lists device files reads them anew.
UVM_REMEDY = "systemctl restart bedplate-gpu-nodes nvidia-cdi-refresh"


def judge(facts: Facts, profile: Profile) -> Iterator[Finding]:
    wanted, files, smi = profile.number("gpu.count"), facts["gpu_files"], facts["smi"]
    driver = [gpu.said("uuid") if gpu.has("uuid") else "" for gpu in smi.gpus]
    shown = sorted({key.partition("/")[0] for key in files.under("proc") if not key.startswith("driver/")})
    present = {key for key, kind in files.under("dev").items() if kind == "character"}
    devices = [key for key in present if re.fullmatch(r"nvidia[0-9]+", key)]
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
        if UVM not in present:  # it is made on demand, and nvidia-smi demands it not: all else looks well
            state = "no device file" if UVM in files.under("dev") else "missing"
            message = f"/dev/{UVM} is {state}: CUDA fails in containers with 999"
            yield bad(UVM, message, value=state, action=CONFIG, remedy=UVM_REMEDY)

    yield from all_or(problems(), f"{wanted} GPUs in nvidia-smi, /proc and /dev", value=wanted)


CHECK = Check("gpu.count", judge, ("gpu_files", "smi"), ("gpu.count",), "hardware model: gpus", REBOOT)
