"""No uncorrectable memory error since the driver was loaded."""

from __future__ import annotations

from collections.abc import Iterator

from bedplate_agent.check import Check, bad, each_gpu
from bedplate_agent.facts import Facts
from bedplate_agent.parse.smi import Gpu
from bedplate_agent.profile import Profile
from bedplate_agent.verdict import RESET, RMA, Finding

_KINDS = (
    ("DRAM", ("ecc_errors/volatile/dram_uncorrectable",)),
    ("SRAM parity", ("ecc_errors/volatile/sram_uncorrectable_parity", "ecc_errors/volatile/sram_uncorrectable")),
    ("SRAM SEC-DED", ("ecc_errors/volatile/sram_uncorrectable_secded", "ecc_errors/volatile/sram_uncorrectable")),
)


def judge(facts: Facts, profile: Profile) -> Iterator[Finding]:
    def look(gpu: Gpu) -> Iterator[Finding]:
        for what, paths in _KINDS:
            if count := gpu.count(*paths):
                action = RMA if what.startswith("SRAM") and count > 1 else ""
                yield bad(gpu.name, f"{count} uncorrectable {what} errors", value=count, limit=0, action=action)

    yield from each_gpu(facts, profile, look, "no uncorrectable error")


CHECK = Check(
    "gpu.ecc_volatile", judge, ("smi",), ("gpu.count",), "NVIDIA GPU memory error management: one is a reset", RESET
)
