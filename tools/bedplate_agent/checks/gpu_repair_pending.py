"""No repair of a memory channel or processing cluster waits, and no memory is beyond repair."""

from __future__ import annotations

from collections.abc import Iterator

from bedplate_agent.check import Check, bad, each_gpu
from bedplate_agent.facts import Facts
from bedplate_agent.parse.smi import Gpu
from bedplate_agent.profile import Profile
from bedplate_agent.verdict import ERROR, RESET, RMA, Finding


def judge(facts: Facts, profile: Profile) -> Iterator[Finding]:
    def look(gpu: Gpu) -> Iterator[Finding]:
        found = {
            path: value
            for path, value in gpu.leaves()
            if path.endswith(("channel_repair_pending", "tpc_repair_pending", "unrepairable_memory"))
        }
        if len(found) < 2:  # noqa: PLR2004  channel and TPC, at least
            yield bad(gpu.name, "the driver does not tell pending repairs", verdict=ERROR)
        for path, value in found.items():
            name = path.rpartition("/")[2]
            if value not in ("Yes", "No"):
                yield bad(gpu.name, f'{name} says "{value}"', verdict=ERROR, value=value)
            elif value == "Yes":
                action = RMA if name == "unrepairable_memory" else ""
                yield bad(gpu.name, name.replace("_", " "), value=value, limit="No", action=action)

    yield from each_gpu(facts, profile, look, "no repair pending")


CHECK = Check(
    "gpu.repair_pending",
    judge,
    ("smi",),
    ("gpu.count",),
    "nvidia-smi -q of branch 590: repairs wait for a reset",
    RESET,
)
