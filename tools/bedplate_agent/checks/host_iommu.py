"""The IOMMU is as asked for: translating for every device would halve the bandwidth between GPUs and adapters."""

from __future__ import annotations

from collections.abc import Iterator

from bedplate_agent.check import Check, all_or, bad
from bedplate_agent.facts import Facts
from bedplate_agent.parse.text import integer
from bedplate_agent.profile import Profile
from bedplate_agent.verdict import CONFIG, Finding


def judge(facts: Facts, profile: Profile) -> Iterator[Finding]:
    wanted, host = profile.text("host.iommu"), facts["host"]
    devices = integer(host.need("iommu/devices"), "iommu/devices")
    words = host.need("cmdline").split()
    found = "off" if devices == 0 else "pt" if "iommu=pt" in words else "on"
    wrong = [bad("", f"the IOMMU is {found}", value=found, limit=wanted)] if found not in wanted.split() else []
    yield from all_or(wrong, f"IOMMU {found}", value=found)


CHECK = Check("host.iommu", judge, ("host",), ("host.iommu",), "health profile: host.iommu", CONFIG)
