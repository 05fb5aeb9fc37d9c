"""A job step may lock all memory, and open many files."""

from __future__ import annotations

from collections.abc import Iterator

from bedplate_agent.check import Check, all_or, bad, held
from bedplate_agent.facts import Facts
from bedplate_agent.parse.text import integer
from bedplate_agent.probe import EXCLUSIVE
from bedplate_agent.profile import Profile
from bedplate_agent.verdict import CONFIG, Finding


def judge(facts: Facts, profile: Profile) -> Iterator[Finding]:
    found = facts["limits"]

    def problems() -> Iterator[Finding]:
        locked = found.get("Max locked memory", "")
        if locked != "unlimited":
            yield bad("memlock", f"a step may lock {locked or '?'} bytes", value=locked, limit="unlimited")
        files = found.get("Max open files", "")
        if files != "unlimited":
            yield from held(
                profile, "host.open_files", integer(files, "Max open files"), "nofile", "open files of a step:"
            )

    yield from all_or(problems(), "locked memory unlimited")


CHECK = Check(
    "host.limits", judge, ("limits",), ("host.open_files",), "health profile: limits host.open_files", CONFIG,
    "LimitMEMLOCK=infinity of slurmd, and PropagateResourceLimitsExcept=MEMLOCK", klass=EXCLUSIVE,
)  # fmt: skip
