"""Slurm has registered the node's GPUs: their number and type are those of device files and driver."""

from __future__ import annotations

import re
from collections.abc import Iterator

from bedplate_agent.check import Check, all_or, bad
from bedplate_agent.facts import Facts
from bedplate_agent.probe import IDLE
from bedplate_agent.profile import Profile
from bedplate_agent.verdict import CONFIG, Finding


def judge(facts: Facts, profile: Profile) -> Iterator[Finding]:
    count, kind, gres = profile.number("gpu.count"), profile.text("gpu.type"), facts["gres"]
    devices = [key for key in facts["gpu_files"].under("dev") if re.fullmatch(r"nvidia[0-9]+", key)]
    uuids = {gpu.text("uuid") for gpu in facts["smi"].gpus}

    def problems() -> Iterator[Finding]:
        if gres.gpus != count:
            yield bad("", f"Slurm has {gres.gpus} GPUs for this node", value=gres.gpus, limit=count)
        if gres.type != kind:
            yield bad("", f'Slurm has GPUs of type "{gres.type}"', value=gres.type, limit=kind)
        if "INVALID_REG" in gres.state or "INVAL" in gres.state:
            yield bad("", f"Slurm refused its registration: {gres.reason}", value="INVALID_REG")
        if not gres.gpus == len(devices) == len(uuids):
            message = f"Slurm {gres.gpus}, device files {len(devices)}, driver {len(uuids)}"
            yield bad("", f"they do not agree: {message}", value=message, limit=count)

    yield from all_or(problems(), f"Slurm, /dev and the driver have {count} {kind}", value=count)


CHECK = Check(
    "gpu.attendance", judge, ("gres", "gpu_files", "smi"), ("gpu.count", "gpu.type"),
    "hardware model: gpus, gpu_type", CONFIG, klass=IDLE,
)  # fmt: skip
