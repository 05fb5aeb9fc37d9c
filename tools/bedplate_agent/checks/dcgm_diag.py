"""Every test of DCGM's diagnostics ran on every GPU, and passed; one that was skipped proves nothing."""

from __future__ import annotations

import re
from collections.abc import Iterator

from bedplate_agent.check import Check, all_or, bad
from bedplate_agent.facts import Facts
from bedplate_agent.probe import EXCLUSIVE
from bedplate_agent.profile import Profile
from bedplate_agent.verdict import ERROR, RMA, WARN, Finding


def judge(facts: Facts, profile: Profile) -> Iterator[Finding]:
    gpus, may_skip, diag = profile.number("gpu.count"), profile.words("dcgm.may_skip"), facts["dcgm_diag"]
    seen: dict[str, set[int]] = {}

    def problems() -> Iterator[Finding]:
        named = {r.test for r in diag.results if r.gpu is not None and r.status in ("Fail", "Error")}
        for result in diag.results:
            if result.gpu is None and result.test in named:
                continue  # the summary of what is told for each GPU
            entity = "" if result.gpu is None else f"gpu{result.gpu}"
            if result.gpu is not None:
                seen.setdefault(result.test, set()).add(result.gpu)
            said = f"{result.test}: {result.status}{f', {result.text[:100]}' if result.text else ''}"
            if result.status in ("Fail", "Error"):
                yield bad(entity, said, value=result.status, limit="Pass")
            elif result.status in ("Skip", "Not Run"):
                if result.test.lower() not in may_skip:
                    yield bad(entity, said, verdict=ERROR, value=result.status, limit="Pass")
            elif result.status == "Warn" or re.search(r"\berror\b", result.text, re.IGNORECASE):
                # NVIDIA/DCGM#284: an error in the text, and Pass beside it.
                yield bad(entity, said, verdict=WARN, value=result.status, limit="Pass")
        for test, of in sorted(seen.items()):
            if len(of) != gpus:
                yield bad("", f"{test} tells {len(of)} of {gpus} GPUs", verdict=ERROR, value=len(of), limit=gpus)
        if not seen:
            yield bad("", "no test of a GPU ran", verdict=ERROR)

    yield from all_or(problems(), f"{len(diag.results)} results, {gpus} GPUs", value=len(diag.results))


CHECK = Check(
    "dcgm.diag",
    judge,
    ("dcgm_diag",),
    ("gpu.count", "dcgm.may_skip"),
    "health profile: dcgm.may_skip",
    RMA,
    klass=EXCLUSIVE,
)
