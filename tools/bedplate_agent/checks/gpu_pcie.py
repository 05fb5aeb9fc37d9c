"""Every GPU has all lanes of its PCIe link, at the generation that it can do."""

from __future__ import annotations

from collections.abc import Iterator

from bedplate_agent.check import Check, bad, each_gpu
from bedplate_agent.facts import Facts
from bedplate_agent.parse.smi import Gpu
from bedplate_agent.profile import Profile
from bedplate_agent.verdict import RMA, Finding


def judge(facts: Facts, profile: Profile) -> Iterator[Finding]:
    width, generation = profile.number("gpu.pcie_width"), profile.number("gpu.pcie_generation")

    def look(gpu: Gpu) -> Iterator[Finding]:
        for which in ("max", "current"):
            found = gpu.quantity("x", f"pci/pci_gpu_link_info/link_widths/{which}_link_width")
            if found != width:
                yield bad(gpu.name, f"{which} PCIe width x{found:g}", value=f"{found:g}", limit=width)
        # The current generation falls while a GPU is idle, by design: the highest that both ends can do is judged.
        best = gpu.count("pci/pci_gpu_link_info/pcie_gen/max_link_gen")
        if best < generation:
            yield bad(gpu.name, f"PCIe generation {best} at most", value=best, limit=generation)

    yield from each_gpu(facts, profile, look, f"PCIe gen{generation} x{width}")


CHECK = Check(
    "gpu.pcie", judge, ("smi",), ("gpu.count", "gpu.pcie_width", "gpu.pcie_generation"),
    "health profile: gpu.pcie_width, gpu.pcie_generation", RMA, "reseat the GPU tray; a second time: RMA",
)  # fmt: skip
