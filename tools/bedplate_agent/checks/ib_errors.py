"""The ports count few errors."""

from __future__ import annotations

from collections.abc import Iterator

from bedplate_agent.check import Check, all_or, bad, held
from bedplate_agent.facts import Facts
from bedplate_agent.profile import Profile
from bedplate_agent.verdict import ERROR, NETWORK, Finding

_COUNTERS = (
    "symbol_error", "port_rcv_errors", "local_link_integrity_errors", "VL15_dropped", "excessive_buffer_overrun_errors",
)  # fmt: skip


def judge(facts: Facts, profile: Profile) -> Iterator[Finding]:
    found, wanted = facts["infiniband"].compute, profile.number("ib.count")

    def problems() -> Iterator[Finding]:
        for device in found:
            for counter in _COUNTERS:
                yield from held(profile, f"ib.{counter}", device.count(counter), device.name, f"{counter}:")
        if len(found) != wanted:
            yield bad("", f"{len(found)} of {wanted} adapters were there", verdict=ERROR, because="ib.count")

    yield from all_or(problems(), "error counters are low")


CHECK = Check(
    "ib.errors", judge, ("infiniband",), ("ib.count", *(f"ib.{counter}" for counter in _COUNTERS)),
    "health profile: limits ib.symbol_error and the others", NETWORK,
)  # fmt: skip
