"""The kernel has reported no error of memory, processor or PCIe."""

from __future__ import annotations

import re
from collections.abc import Iterator

from bedplate_agent.check import Check, all_or, bad, kernel_log
from bedplate_agent.facts import Facts
from bedplate_agent.profile import Profile
from bedplate_agent.verdict import RMA, WARN, WATCH, Finding

_FATAL = re.compile(
    r"[Mm]achine [Cc]heck.*(?:[Ff]atal|[Uu]ncorrected)|EDAC.*\bUE\b|Hardware Error.*(?:fatal|uncorrect)|"
    r"AER: (?:Fatal|Uncorrected \(Fatal\))"
)
_SEEN = re.compile(
    r"[Mm]achine [Cc]heck (?:events logged|Exception)|EDAC.*\bCE\b|I/O error, dev|AER: .*[Nn]on-?[Ff]atal|"
    r"Hardware Error\]: (?:event severity|Machine check events)"
)


def judge(facts: Facts, profile: Profile) -> Iterator[Finding]:
    messages = [m.text for m in kernel_log(facts, profile).messages]
    fatal = [text for text in messages if _FATAL.search(text)]
    seen = [text for text in messages if _SEEN.search(text) and text not in fatal]

    def problems() -> Iterator[Finding]:
        if fatal:
            yield bad("", f"{len(fatal)} uncorrected errors, first: {fatal[0][:120]}", value=len(fatal), limit=0)
        if seen:
            message = f"{len(seen)} reports, first: {seen[0][:120]}"
            yield bad("", message, verdict=WARN, value=len(seen), limit=0, action=WATCH)

    yield from all_or(problems(), "no hardware error")


CHECK = Check("kernel.hardware", judge, ("journal",), (), "a healthy node reports none", RMA)
