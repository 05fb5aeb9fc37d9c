"""The adapters write at line rate to their partner."""

from __future__ import annotations

from collections.abc import Iterator

from bedplate_agent.check import Check, all_or, held
from bedplate_agent.facts import Facts
from bedplate_agent.probe import EXCLUSIVE
from bedplate_agent.profile import Profile
from bedplate_agent.verdict import NETWORK, Finding


def judge(facts: Facts, profile: Profile) -> Iterator[Finding]:
    found = facts["ib_write"]
    yield from all_or(held(profile, "ib.bandwidth", found, "", "ib_write_bw"), "at line rate", value=f"{found:g}")


CHECK = Check(
    "ib.bandwidth", judge, ("ib_write",), ("ib.bandwidth", "ib.write_arguments"), "health profile: limits ib.bandwidth",
    NETWORK, klass=EXCLUSIVE,
)  # fmt: skip
