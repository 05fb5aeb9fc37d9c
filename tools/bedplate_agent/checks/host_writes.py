"""What is written reaches the disk, and soon."""

from __future__ import annotations

from collections.abc import Iterator

from bedplate_agent.check import Check, all_or, bad, held
from bedplate_agent.facts import Facts
from bedplate_agent.probe import ABANDONED, DONE, LATE
from bedplate_agent.profile import Profile
from bedplate_agent.verdict import REBOOT, Finding


def judge(facts: Facts, profile: Profile) -> Iterator[Finding]:
    paths = profile.words("host.writes")

    def problems() -> Iterator[Finding]:
        for path in paths:
            raw = facts.raw(f"write:{path}")
            if raw.state in (LATE, ABANDONED):
                yield bad(path, "a small write does not end", value=raw.state)
            elif raw.state == DONE and raw.code:
                yield bad(path, f"cannot be written: {' '.join(raw.err.split())[:120]}", value=raw.code)
            else:
                yield from held(profile, "host.write", facts[f"write:{path}"], path, "a small write took")

    yield from all_or(problems(), f"{len(paths)} file systems can be written", value=len(paths))


CHECK = Check(
    "host.writes", judge, ("write:",), ("host.writes", "host.write"), "health profile: host.writes, limits host.write",
    REBOOT, "free space, or look at the disk; then reboot",
)  # fmt: skip
