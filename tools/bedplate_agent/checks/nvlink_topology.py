"""Every GPU reaches every other one over all its NVLinks, and has its network adapters nearby."""

from __future__ import annotations

from collections.abc import Iterator

from bedplate_agent.check import Check, all_or, bad
from bedplate_agent.facts import Facts
from bedplate_agent.parse.topology import per_direction
from bedplate_agent.profile import Profile
from bedplate_agent.verdict import CONFIG, RESET, Finding

_NEAR = ("PIX", "PXB")


def judge(facts: Facts, profile: Profile) -> Iterator[Finding]:
    gpus, links, found = profile.number("gpu.count"), profile.number("nvlink.links"), facts["topology"]
    near = profile.number("topology.near_adapters")

    def problems() -> Iterator[Finding]:
        if found.gpus != gpus:
            yield bad("", f"{found.gpus} GPUs in the topology", value=found.gpus, limit=gpus)
        for row in range(found.gpus):
            others = [found.cells[f"GPU{row}", f"GPU{column}"] for column in range(found.gpus) if column != row]
            wrong = sorted({cell for cell in others if per_direction(cell) != links})
            if wrong:
                yield bad(f"gpu{row}", f"reaches others by {', '.join(wrong)}", value=wrong[0], limit=f"NV{links}")
            close = sum(found.cells[f"GPU{row}", nic] in _NEAR for nic in found.nics)
            if close < near:
                message = f"{close} adapters behind the same PCIe switch"
                yield bad(f"gpu{row}", message, value=close, limit=near, action=CONFIG)

    yield from all_or(problems(), f"NV{links} among {gpus} GPUs", value=f"NV{links}")


CHECK = Check(
    "nvlink.topology", judge, ("topology",), ("gpu.count", "nvlink.links", "topology.near_adapters"),
    "health profile: nvlink.links, topology.near_adapters", RESET,
)  # fmt: skip
