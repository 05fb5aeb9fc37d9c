"""The node can make a credential, and read it."""

from __future__ import annotations

from collections.abc import Iterator

from bedplate_agent.check import Check, all_or, bad
from bedplate_agent.facts import Facts
from bedplate_agent.profile import Profile
from bedplate_agent.verdict import CONFIG, Finding


def judge(facts: Facts, _: Profile) -> Iterator[Finding]:
    status = facts["munge"]
    wrong = [bad("", f"munge: {status}", value=status, limit="Success (0)")] if status != "Success (0)" else []
    yield from all_or(wrong, "munge works")


CHECK = Check("host.munge", judge, ("munge",), (), "Slurm speaks to no node without it", CONFIG)
