"""Every GPU calculates correctly under full load for twenty minutes."""

from __future__ import annotations

from collections.abc import Iterator

from bedplate_agent.check import Check, all_or, bad
from bedplate_agent.facts import Facts
from bedplate_agent.probe import EXCLUSIVE
from bedplate_agent.profile import Profile
from bedplate_agent.verdict import RMA, Finding


def judge(facts: Facts, profile: Profile) -> Iterator[Finding]:
    found, wanted = facts["burn"], profile.number("gpu.count")

    def problems() -> Iterator[Finding]:
        if len(found) != wanted:
            yield bad("", f"{len(found)} GPUs were tested", value=len(found), limit=wanted)
        for index, said in sorted(found.items()):
            if said != "OK":
                yield bad(f"gpu{index}", "calculates wrongly under load", value=said, limit="OK")

    yield from all_or(problems(), f"{wanted} GPUs without a wrong result", value=wanted)


CHECK = Check(
    "gpu.burn",
    judge,
    ("burn",),
    ("gpu.count",),
    "hardware model: gpus; a wrong result is one too many",
    RMA,
    klass=EXCLUSIVE,
)
