"""The BMC has recorded no fault of a part."""

from __future__ import annotations

import re
from collections.abc import Iterator

from bedplate_agent.check import Check, all_or, bad
from bedplate_agent.facts import Facts
from bedplate_agent.probe import OUT_OF_BAND
from bedplate_agent.profile import Profile
from bedplate_agent.verdict import ERROR, RMA, WARN, WATCH, Finding

_FATAL = re.compile(r"[Uu]ncorrectable|[Ff]atal|IERR|CATERR|[Nn]on-recoverable|[Tt]hermal [Tt]rip", re.IGNORECASE)
_BAD = re.compile(r"[Ff]ailure|[Rr]edundancy [Ll]ost|[Cc]ritical|AC lost|PERR|SERR|Bus Error", re.IGNORECASE)


def judge(facts: Facts, profile: Profile) -> Iterator[Finding]:
    known, entries, events = profile.number("bmc.known_entries"), facts["bmc_info"], facts["bmc_events"]

    def problems() -> Iterator[Finding]:
        if len(events) < entries:
            yield bad("", f"{len(events)} of {entries} entries were told: cut off", verdict=ERROR)
        for event in events[known:]:
            what = f"{event.sensor}: {event.text}"
            if event.asserted and _FATAL.search(event.text):
                yield bad(event.sensor, f"entry {event.number}: {what}", value=event.text)
            elif event.asserted and _BAD.search(event.text):
                yield bad(event.sensor, f"entry {event.number}: {what}", verdict=WARN, value=event.text, action=WATCH)

    yield from all_or(problems(), f"no fault in {entries} entries", value=entries)


CHECK = Check(
    "bmc.events", judge, ("bmc_info", "bmc_events"), ("bmc.known_entries",),
    "health profile: bmc.known_entries, those that stood there at acceptance", RMA, klass=OUT_OF_BAND,
)  # fmt: skip
