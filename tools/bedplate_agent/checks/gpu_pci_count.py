"""Every GPU is on the PCI bus, answers there, and is the right device."""

from __future__ import annotations

from collections.abc import Iterator

from bedplate_agent.check import Check, all_or, bad
from bedplate_agent.facts import Facts
from bedplate_agent.parse.journal import short_bus
from bedplate_agent.profile import Profile
from bedplate_agent.verdict import CONFIG, POWER, Finding


def judge(facts: Facts, profile: Profile) -> Iterator[Finding]:
    wanted, ids = profile.number("gpu.count"), profile.words("gpu.pci_ids")
    listing = facts["pci"].under("gpu")
    addresses = sorted({key.partition("/")[0] for key in listing})

    def problems() -> Iterator[Finding]:
        if len(addresses) != wanted:
            yield bad("", f"{len(addresses)} GPUs on the PCI bus", value=len(addresses), limit=wanted)
        for address in addresses:
            if listing.get(f"{address}/config", "") in ("", "ffffffff"):
                yield bad(short_bus(address), "does not answer on the PCI bus (rev ff)", value="ffffffff")
            elif (device := listing.get(f"{address}/device", "")) not in ids:
                message = f"is PCI device {device}"
                yield bad(short_bus(address), message, value=device, limit=" ".join(ids), action=CONFIG)

    yield from all_or(problems(), f"{wanted} GPUs on the PCI bus", value=wanted)


CHECK = Check(
    "gpu.pci_count", judge, ("pci",), ("gpu.count", "gpu.pci_ids"),
    "hardware model: gpus; health profile: gpu.pci_ids", POWER,
)  # fmt: skip
