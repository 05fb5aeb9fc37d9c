"""Every adapter has firmware that is known to be good, and all have the same."""

from __future__ import annotations

from collections.abc import Iterator

from bedplate_agent.check import Check, all_or, bad
from bedplate_agent.facts import Facts
from bedplate_agent.profile import Profile
from bedplate_agent.verdict import CONFIG, ERROR, WARN, Finding


def judge(facts: Facts, profile: Profile) -> Iterator[Finding]:
    found, known = facts["infiniband"].compute, profile.words("ib.firmware")
    versions = {device.name: device.values.need("fw_ver") for device in found}

    def problems() -> Iterator[Finding]:
        for name, version in versions.items():
            if version not in known:
                yield bad(name, f"firmware {version}", value=version, limit=" ".join(known))
        if len(set(versions.values())) > 1:
            yield bad("", f"several versions: {', '.join(sorted(set(versions.values())))}", verdict=WARN)
        if len(found) != profile.number("ib.count"):
            yield bad("", f"{len(found)} adapters were there", verdict=ERROR, because="ib.count")

    yield from all_or(problems(), "one version of firmware")


CHECK = Check(
    "ib.firmware", judge, ("infiniband",), ("ib.count", "ib.firmware"), "health profile: ib.firmware", CONFIG,
    "flash the firmware of the release",
)  # fmt: skip
