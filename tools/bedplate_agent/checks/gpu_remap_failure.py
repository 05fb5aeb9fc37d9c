"""No row of memory could not be remapped."""

from __future__ import annotations

from collections.abc import Iterator

from bedplate_agent.check import Check, bad, each_gpu
from bedplate_agent.facts import Facts
from bedplate_agent.parse.smi import Gpu
from bedplate_agent.profile import Profile
from bedplate_agent.verdict import RMA, Finding


def judge(facts: Facts, profile: Profile) -> Iterator[Finding]:
    def look(gpu: Gpu) -> Iterator[Finding]:
        if gpu.one_of(("Yes", "No", "1", "0"), "remapped_rows/remapped_row_failure") in ("Yes", "1"):
            yield bad(gpu.name, "a row could not be remapped", value="Yes", limit="No")

    yield from each_gpu(facts, profile, look, "no remap failed")


CHECK = Check(
    "gpu.remap_failure", judge, ("smi",), ("gpu.count",), "NVIDIA GPU memory error management: RMA criteria", RMA
)
