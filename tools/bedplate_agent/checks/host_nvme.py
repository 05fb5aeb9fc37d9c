"""Every drive is there, without errors, and not worn out."""

from __future__ import annotations

from collections.abc import Iterator

from bedplate_agent.check import Check, all_or, bad, held
from bedplate_agent.facts import Facts
from bedplate_agent.profile import Profile
from bedplate_agent.verdict import RMA, Finding


def judge(facts: Facts, profile: Profile) -> Iterator[Finding]:
    wanted, found = profile.number("nvme.count"), facts["nvme"]

    def problems() -> Iterator[Finding]:
        if len(found) != wanted:
            yield bad("", f"{len(found)} drives", value=len(found), limit=wanted)
        for drive in found:
            if drive.critical_warning:
                yield bad(
                    drive.name,
                    f"critical warning 0x{drive.critical_warning:02x}",
                    value=drive.critical_warning,
                    limit=0,
                )
            if drive.spare_percent <= drive.spare_threshold:
                yield bad(
                    drive.name, f"spare {drive.spare_percent} %", value=drive.spare_percent, limit=drive.spare_threshold
                )
            yield from held(profile, "nvme.media_errors", drive.media_errors, drive.name, "media errors:")
            yield from held(profile, "nvme.used", drive.used_percent, drive.name, "worn by")

    yield from all_or(problems(), f"{wanted} drives", value=wanted)


CHECK = Check(
    "host.nvme", judge, ("nvme",), ("nvme.count", "nvme.media_errors", "nvme.used"),
    "health profile: nvme.count, limits nvme.media_errors, nvme.used", RMA, "replace the drive",
)  # fmt: skip
