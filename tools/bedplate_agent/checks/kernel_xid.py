"""The driver has reported no error (Xid) that takes a GPU out of use; of several, the first culprit is named."""

from __future__ import annotations

from collections.abc import Iterator

from bedplate_agent.check import Check, all_or, bad, kernel_log
from bedplate_agent.facts import Facts
from bedplate_agent.profile import Profile
from bedplate_agent.verdict import RESET, Finding
from bedplate_agent.xids import judged


def judge(facts: Facts, profile: Profile) -> Iterator[Finding]:
    xids = kernel_log(facts, profile).xids

    def problems() -> Iterator[Finding]:
        told: dict[tuple[str, int, str], int] = {}
        for found in judged(xids):
            key = (found.xid.bus, found.xid.code, found.verdict)
            told[key] = told.get(key, 0) + 1
            if told[key] > 1:
                continue  # one finding for each GPU and code, however often it came
            follows = found.victim_of
            after = f", after Xid {follows.code} of {follows.bus}" if follows else ""
            message = f"Xid {found.xid.code} {found.why}{after}: {found.xid.text[:100]}"
            yield bad(found.xid.bus, message, verdict=found.verdict, value=found.xid.code, action=found.action)

    yield from all_or(problems(), f"no fatal Xid among {len(xids)}", value=len(xids))


CHECK = Check("kernel.xid", judge, ("journal",), (), "NVIDIA's catalogue of Xids, branch 590 (xids.py)", RESET)
