"""The site's own checks in /etc/slurm/health.d pass."""

from __future__ import annotations

from collections.abc import Iterator

from bedplate_agent.check import Check, all_or, bad
from bedplate_agent.facts import Facts
from bedplate_agent.profile import Profile
from bedplate_agent.verdict import ERROR, WATCH, Finding


def judge(facts: Facts, _: Profile) -> Iterator[Finding]:
    told = facts["site"]

    def problems() -> Iterator[Finding]:
        for name, (code, said) in told.items():
            if code is None:
                yield bad(name, said, verdict=ERROR)
            elif code:
                yield bad(name, said or f"ended with {code}", value=code, limit="0")

    yield from all_or(problems(), f"{len(told)} checks of the site pass", value=len(told))


CHECK = Check(
    "host.site", judge, ("site",), (), "the site: programs in /etc/slurm/health.d, exit code 0", WATCH,
    "what the check says",
)  # fmt: skip
