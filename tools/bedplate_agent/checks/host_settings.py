"""Kernel settings, swap and huge pages are those that training needs."""

from __future__ import annotations

from collections.abc import Iterator

from bedplate_agent.check import Check, all_or, bad
from bedplate_agent.facts import Facts
from bedplate_agent.profile import Profile
from bedplate_agent.verdict import CONFIG, WARN, Finding


def judge(facts: Facts, profile: Profile) -> Iterator[Finding]:
    host, names = facts["host"], profile.words("host.sysctls")
    wanted = profile.words("host.sysctl_values")

    def problems() -> Iterator[Finding]:
        for name, value in zip(names, wanted, strict=True):
            if (found := " ".join(host.need(f"sysctl/{name}").split())) != value:
                yield bad(name, f"{name} is {found}", value=found, limit=value)
        if host.need("meminfo/SwapTotal") != "0 kB":
            yield bad(
                "",
                f"swap of {host.need('meminfo/SwapTotal')}",
                verdict=WARN,
                value=host["meminfo/SwapTotal"],
                limit="0 kB",
            )

    yield from all_or(problems(), f"{len(names)} settings as asked for, no swap")


CHECK = Check(
    "host.settings", judge, ("host",), ("host.sysctls", "host.sysctl_values"), "health profile: sysctls", CONFIG
)
