"""The SRAM of no GPU has passed the number of errors after which NVIDIA replaces it."""

from __future__ import annotations

from collections.abc import Iterator

from bedplate_agent.check import Check, bad, each_gpu
from bedplate_agent.facts import Facts
from bedplate_agent.parse.smi import Gpu
from bedplate_agent.profile import Profile
from bedplate_agent.verdict import RMA, Finding


def judge(facts: Facts, profile: Profile) -> Iterator[Finding]:
    def look(gpu: Gpu) -> Iterator[Finding]:
        if gpu.one_of(("Yes", "No"), "ecc_errors/aggregate/sram_threshold_exceeded") == "Yes":
            yield bad(gpu.name, "SRAM errors have passed NVIDIA's threshold", value="Yes", limit="No")

    yield from each_gpu(facts, profile, look, "SRAM threshold not passed")


CHECK = Check(
    "gpu.ecc_aggregate", judge, ("smi",), ("gpu.count",), "NVIDIA GPU memory error management: RMA criteria", RMA
)
