"""The NVLinks count no fatal error, and few of the others."""

from __future__ import annotations

import re
from collections.abc import Iterator

from bedplate_agent.check import Check, all_or, bad, held
from bedplate_agent.facts import Facts
from bedplate_agent.profile import Profile
from bedplate_agent.verdict import ERROR, RESET, Finding

_FATAL = re.compile(r"fatal|uncorrect|Link recovery failed", re.IGNORECASE)
# Corrected symbols and FEC bins grow on every good link of NVLink5, and packets are no errors.
_COUNTED = re.compile(
    r"(Replay|Recovery|CRC|Malformed packet|Buffer overrun|Rx|Rx remote|Rx General|Local link integrity|Effective)"
    r" Errors"
)


def judge(facts: Facts, profile: Profile) -> Iterator[Finding]:
    gpus, links, found = profile.number("gpu.count"), profile.number("nvlink.links"), facts["nvlink_errors"]

    def problems() -> Iterator[Finding]:
        if len(found) != gpus:
            yield bad("", f"counters of {len(found)} GPUs are told", verdict=ERROR, value=len(found), limit=gpus)
        for gpu in found:
            name = f"gpu{gpu.gpu}"
            if len(gpu.links) < links:
                yield bad(name, f"counters of {len(gpu.links)} links are told", verdict=ERROR, limit=links)
            if not any(_COUNTED.fullmatch(counter) for _, counter in gpu.counts):
                yield bad(name, "no counter that is known here", verdict=ERROR)
            for (link, counter), count in sorted(gpu.counts.items()):
                if count and _FATAL.search(counter):
                    yield bad(name, f"link {link}: {count:g} {counter}", value=f"{count:g}", limit=0)
                elif counter == "Effective BER":
                    yield from held(profile, "nvlink.ber", count, name, f"link {link} {counter}")
                elif _COUNTED.fullmatch(counter):
                    yield from held(profile, "nvlink.errors", count, name, f"link {link} {counter}")

    yield from all_or(problems(), "NVLink counters are low")


CHECK = Check(
    "nvlink.errors", judge, ("nvlink_errors",), ("gpu.count", "nvlink.links", "nvlink.errors", "nvlink.ber"),
    "health profile: limits nvlink.errors, nvlink.ber; a fatal error is one too many", RESET,
)  # fmt: skip
