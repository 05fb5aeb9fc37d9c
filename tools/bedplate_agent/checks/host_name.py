"""The node has its own name, in the kernel and in the DNS, forward and back, and answers at once."""

from __future__ import annotations

from collections.abc import Iterator

from bedplate_agent.check import Check, all_or, bad, held
from bedplate_agent.facts import Facts
from bedplate_agent.parse.text import integer
from bedplate_agent.profile import Profile
from bedplate_agent.verdict import CONFIG, WARN, Finding


def judge(facts: Facts, profile: Profile) -> Iterator[Finding]:
    wanted, address = profile.text("host.name"), profile.text("host.address")
    hostname, resolved = facts["host"].need("hostname"), facts["resolve"]

    def problems() -> Iterator[Finding]:
        if hostname.partition(".")[0] != wanted:
            yield bad("", f"its host name is {hostname}", value=hostname, limit=wanted)
        back = resolved.under("address")
        if not back:
            yield bad("", f"{wanted} has no address: {resolved.get('unresolved', '')}", limit=address)
        elif address not in back and not all(one.startswith("127.") for one in back):
            yield bad("", f"{wanted} is {', '.join(sorted(back))}", value=min(back), limit=address)
        elif (name := back.get(address)) is not None and name.partition(".")[0] != wanted:
            yield bad("", f"{address} is called {name}", verdict=WARN, value=name, limit=wanted)
        yield from held(profile, "host.resolve", integer(resolved.need("ms"), "ms"), "", "resolving took")

    yield from all_or(problems(), f"{wanted} is {address}", value=wanted)


CHECK = Check(
    "host.name", judge, ("host", "resolve"), ("host.name", "host.address", "host.resolve"),
    "fleet: name and address; health profile: limits host.resolve", CONFIG,
)  # fmt: skip
