"""No NVSwitch has reported a fatal error (SXid)."""

from __future__ import annotations

from collections.abc import Iterator

from bedplate_agent.check import Check, all_or, bad, kernel_log
from bedplate_agent.facts import Facts
from bedplate_agent.parse.journal import short_bus
from bedplate_agent.profile import Profile
from bedplate_agent.verdict import POWER, RESET, WARN, WATCH, Finding


def judge(facts: Facts, profile: Profile) -> Iterator[Finding]:
    sxids = kernel_log(facts, profile).sxids
    switches = facts["pci"].under("nvswitch")
    wanted = profile.number("nvswitch.count")
    there = sorted({key.partition("/")[0] for key in switches})

    def problems() -> Iterator[Finding]:
        if len(there) != wanted:
            yield bad("", f"{len(there)} NVSwitches on the PCI bus", value=len(there), limit=wanted, action=POWER)
        for address in there:
            if switches.get(f"{address}/config", "") in ("", "ffffffff"):
                yield bad(short_bus(address), "does not answer on the PCI bus", value="ffffffff", action=POWER)
        for name in sorted({sxid.bus for sxid in sxids}):
            of = [sxid for sxid in sxids if sxid.bus == name]
            fatal = [sxid for sxid in of if sxid.severity == "Fatal"]
            if fatal:
                yield bad(name, f"SXid {fatal[0].code}: {fatal[0].text[:100]}", value=fatal[0].code)
            else:
                message = f"{len(of)} nonfatal SXids, first {of[0].code}: {of[0].text[:80]}"
                yield bad(name, message, verdict=WARN, value=of[0].code, action=WATCH)

    yield from all_or(problems(), f"{wanted} NVSwitches, no SXid", value=wanted)


CHECK = Check(
    "kernel.sxid",
    judge,
    ("journal", "pci"),
    ("nvswitch.count",),
    "health profile: nvswitch.count (up to Hopper)",
    RESET,
)
