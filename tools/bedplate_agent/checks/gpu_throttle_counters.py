"""No GPU was slowed down by heat or power while it was loaded: the driver's own counters, before and after."""

from __future__ import annotations

import re
from collections.abc import Iterator

from bedplate_agent.check import Check, bad, each_gpu
from bedplate_agent.facts import Facts, Unreadable
from bedplate_agent.parse.smi import Gpu
from bedplate_agent.probe import EXCLUSIVE
from bedplate_agent.profile import Profile
from bedplate_agent.verdict import ERROR, RMA, Finding

_COUNTERS = ("hw_therm", "hw_power_brake")


def _counts(gpu: Gpu) -> dict[str, float]:
    return {
        path.rpartition("/")[2]: float(value.split()[0])
        for path, value in gpu.leaves()
        if "clocks_event_reasons_counters" in path
        and any(name in path for name in _COUNTERS)
        and re.fullmatch(r"[0-9]+ us", value)
    }


def judge(facts: Facts, profile: Profile) -> Iterator[Finding]:
    if set(facts["burn"].values()) != {"OK"}:
        raise Unreadable("the burn itself failed", "gpu.burn")
    before = {gpu.bus: _counts(gpu) for gpu in facts["smi"].gpus}

    def look(gpu: Gpu) -> Iterator[Finding]:
        after, first = _counts(gpu), before.get(gpu.bus, {})
        if len(after) < len(_COUNTERS) or after.keys() != first.keys():
            yield bad(gpu.name, "the driver does not tell the counters", verdict=ERROR)
        for name, count in after.items():
            if (more := count - first.get(name, 0)) > 0:
                yield bad(gpu.name, f"{name} for {more / 1e6:g} s under load", value=f"{more:g}", limit=0, unit="us")

    yield from each_gpu(facts, profile, look, "never slowed down under load", probe="smi_after")


CHECK = Check(
    "gpu.throttle_counters", judge, ("smi", "burn", "smi_after"), ("gpu.count",),
    "a healthy node is never slowed down by its cooling or power", RMA,
    "look at fans, inlet temperature and power supplies",
    klass=EXCLUSIVE,
)  # fmt: skip
