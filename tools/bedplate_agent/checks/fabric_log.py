"""The log of the NVLink subnet manager has no error."""

from __future__ import annotations

from collections.abc import Iterator

from bedplate_agent.check import Check, all_or, bad
from bedplate_agent.facts import Facts
from bedplate_agent.profile import Profile
from bedplate_agent.verdict import WARN, WATCH, Finding


def judge(facts: Facts, _: Profile) -> Iterator[Finding]:
    errors = facts["nvlsm_log"]
    found = (
        [bad("", f"{len(errors)} errors, last: {errors[-1][:120]}", verdict=WARN, value=len(errors))] if errors else []
    )
    yield from all_or(found, "no error in /var/log/nvlsm.log")


CHECK = Check("fabric.log", judge, ("nvlsm_log",), (), "a healthy subnet manager logs no ERR", WATCH)
