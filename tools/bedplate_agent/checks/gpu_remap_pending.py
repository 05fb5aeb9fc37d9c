"""No row of memory waits for a reset to be remapped."""

from __future__ import annotations

from collections.abc import Iterator

from bedplate_agent.check import Check, bad, each_gpu
from bedplate_agent.facts import Facts
from bedplate_agent.parse.smi import Gpu
from bedplate_agent.profile import Profile
from bedplate_agent.verdict import RESET, Finding


def judge(facts: Facts, profile: Profile) -> Iterator[Finding]:
    def look(gpu: Gpu) -> Iterator[Finding]:
        # "Yes" and "No"; older drivers wrote 1 and 0, and a shell that compares numbers passes "Yes" (AzNHC did).
        if gpu.one_of(("Yes", "No", "1", "0"), "remapped_rows/remapped_row_pending") in ("Yes", "1"):
            yield bad(gpu.name, "a remapped row waits for a reset", value="Yes", limit="No")

    yield from each_gpu(facts, profile, look, "no remap pending")


CHECK = Check(
    "gpu.remap_pending", judge, ("smi",), ("gpu.count",), "NVIDIA GPU memory error management: row remapping", RESET
)
