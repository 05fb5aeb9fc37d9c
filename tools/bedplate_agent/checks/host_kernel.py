"""The kernel that runs is the environment's."""

from __future__ import annotations

from collections.abc import Iterator

from bedplate_agent.check import Check, all_or, bad
from bedplate_agent.facts import Facts
from bedplate_agent.profile import Profile
from bedplate_agent.verdict import REBOOT, Finding


def judge(facts: Facts, profile: Profile) -> Iterator[Finding]:
    wanted, found = profile.text("host.kernel"), facts["host"].need("kernel")
    wrong = [bad("", f"runs {found}", value=found, limit=wanted)] if found != wanted else []
    yield from all_or(wrong, wanted, value=found)


CHECK = Check(
    "host.kernel",
    judge,
    ("host",),
    ("host.kernel",),
    "lock: layer kernel",
    REBOOT,
    "reboot into the environment's kernel",
)
