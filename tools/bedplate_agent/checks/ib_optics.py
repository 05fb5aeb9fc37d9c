"""No module of a port has reported a fault."""

from __future__ import annotations

import re
from collections.abc import Iterator

from bedplate_agent.check import Check, all_or, bad, kernel_log
from bedplate_agent.facts import Facts
from bedplate_agent.parse.journal import short_bus
from bedplate_agent.profile import Profile
from bedplate_agent.verdict import NETWORK, WARN, Finding

_EVENT = re.compile(r"mlx5_core ([0-9a-f:.]+).*Port module event\[error\]: (.*)")
_HOT = re.compile(r"mlx5_core ([0-9a-f:.]+).*[Hh]igh temperature")


def judge(facts: Facts, profile: Profile) -> Iterator[Finding]:

    def problems() -> Iterator[Finding]:
        seen: dict[tuple[str, str], int] = {}
        for message in kernel_log(facts, profile).messages:
            match = _EVENT.search(message.text) or _HOT.search(message.text)
            if match:
                what = match[2] if match.re is _EVENT else "high temperature"
                seen[match[1], what] = seen.get((match[1], what), 0) + 1
        for (address, what), times in sorted(seen.items()):
            yield bad(short_bus(address), f"{what} ({times} times)", verdict=WARN, value=times, limit=0)

    yield from all_or(problems(), "no fault of a port module")


CHECK = Check("ib.optics", judge, ("journal",), (), "mlx5: port module events", NETWORK, "look at optic and cable")
