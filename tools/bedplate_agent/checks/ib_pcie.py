"""Every adapter has all lanes of its PCIe link, at full speed."""

from __future__ import annotations

from collections.abc import Iterator

from bedplate_agent.check import Check, all_or, bad
from bedplate_agent.facts import Facts
from bedplate_agent.profile import Profile
from bedplate_agent.verdict import ERROR, RMA, Finding


def judge(facts: Facts, profile: Profile) -> Iterator[Finding]:
    found, wanted = facts["infiniband"].compute, profile.number("ib.count")
    width, speed = profile.text("ib.pcie_width"), profile.text("ib.pcie_speed")

    def problems() -> Iterator[Finding]:
        for device in found:
            lanes, now = device.values.need("pci/current_link_width"), device.values.need("pci/current_link_speed")
            if lanes != width:
                yield bad(device.name, f"PCIe width x{lanes}", value=lanes, limit=width)
            if now != speed:
                yield bad(device.name, f"PCIe speed {now}", value=now, limit=speed)
        if len(found) != wanted:
            yield bad("", f"{len(found)} of {wanted} adapters were there", verdict=ERROR, because="ib.count")

    yield from all_or(problems(), f"PCIe x{width} at {speed}")


CHECK = Check(
    "ib.pcie", judge, ("infiniband",), ("ib.count", "ib.pcie_width", "ib.pcie_speed"),
    "health profile: ib.pcie_width, ib.pcie_speed", RMA, "reseat the adapter; a second time: RMA",
)  # fmt: skip
