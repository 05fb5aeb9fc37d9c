"""The PCIe links repeat few packets."""

from __future__ import annotations

from collections.abc import Iterator

from bedplate_agent.check import Check, each_gpu, held
from bedplate_agent.facts import Facts
from bedplate_agent.parse.smi import Gpu
from bedplate_agent.profile import Profile
from bedplate_agent.verdict import WATCH, Finding


def judge(facts: Facts, profile: Profile) -> Iterator[Finding]:
    def look(gpu: Gpu) -> Iterator[Finding]:
        count = gpu.count("pci/replay_counter")
        yield from held(profile, "gpu.pcie_replays", count, gpu.name, "PCIe replays since the driver was loaded:")

    yield from each_gpu(facts, profile, look, "few PCIe replays")


CHECK = Check(
    "gpu.pcie_replays",
    judge,
    ("smi",),
    ("gpu.count", "gpu.pcie_replays"),
    "health profile: limits gpu.pcie_replays",
    WATCH,
)
