"""Every GPU has all its memory banks, and most of their spare rows."""

from __future__ import annotations

from collections.abc import Iterator

from bedplate_agent.check import Check, bad, each_gpu
from bedplate_agent.facts import Facts
from bedplate_agent.parse.smi import Gpu
from bedplate_agent.profile import Profile
from bedplate_agent.verdict import RMA, WARN, WATCH, Finding

_SIZES = ("max", "high", "partial", "low", "none")


def judge(facts: Facts, profile: Profile) -> Iterator[Finding]:
    wanted = profile.number("gpu.remap_banks")

    def look(gpu: Gpu) -> Iterator[Finding]:
        banks = {
            size: gpu.quantity("bank(s)", f"remapped_rows/row_remapper_histogram/row_remapper_histogram_{size}")
            for size in _SIZES
        }
        if (total := sum(banks.values())) != wanted:
            yield bad(gpu.name, f"{total:g} memory banks", value=f"{total:g}", limit=wanted)
        if spent := banks["low"] + banks["none"]:
            yield bad(
                gpu.name, f"{spent:g} banks have few spare rows left", verdict=WARN, value=f"{spent:g}", action=WATCH
            )

    yield from each_gpu(facts, profile, look, f"{wanted} banks")


CHECK = Check(
    "gpu.remap_banks", judge, ("smi",), ("gpu.count", "gpu.remap_banks"), "health profile: gpu.remap_banks", RMA
)
