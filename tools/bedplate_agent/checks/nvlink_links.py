"""Every NVLink of every GPU is up, at full speed."""

from __future__ import annotations

from collections.abc import Iterator

from bedplate_agent.check import Check, all_or, bad, held
from bedplate_agent.facts import Facts
from bedplate_agent.profile import Profile
from bedplate_agent.verdict import RESET, Finding


def judge(facts: Facts, profile: Profile) -> Iterator[Finding]:
    gpus, links, found = profile.number("gpu.count"), profile.number("nvlink.links"), facts["nvlink_status"]

    def problems() -> Iterator[Finding]:
        if len(found) != gpus:
            yield bad("", f"links of {len(found)} GPUs are told", value=len(found), limit=gpus)
        for gpu in found:
            down = sorted(number for number, rate in gpu.rates.items() if rate is None)
            up = len(gpu.rates) - len(down)
            if up != links:  # some drivers show twice as many slots as there are links: the active ones count
                which = f": {', '.join(map(str, down))} inactive" if down else ""
                yield bad(f"gpu{gpu.gpu}", f"{up} of {links} links are up{which}", value=up, limit=links)
            slow = {number: rate for number, rate in gpu.rates.items() if rate is not None}
            if slow:
                worst = min(slow, key=slow.__getitem__)
                yield from held(profile, "nvlink.rate", slow[worst], f"gpu{gpu.gpu}", f"link {worst} at")

    yield from all_or(problems(), f"{gpus} GPUs with {links} links each", value=links)


CHECK = Check(
    "nvlink.links", judge, ("nvlink_status",), ("gpu.count", "nvlink.links", "nvlink.rate"),
    "health profile: nvlink.links, limits nvlink.rate", RESET,
)  # fmt: skip
