"""The NVIDIA driver answers nvidia-smi: told once, however many checks depend on it."""

from __future__ import annotations

import re
from collections.abc import Iterator

from bedplate_agent.check import Check, all_or, bad
from bedplate_agent.facts import Facts
from bedplate_agent.parse.journal import short_bus
from bedplate_agent.probe import ABANDONED, DONE, LATE
from bedplate_agent.profile import Profile
from bedplate_agent.verdict import POWER, REBOOT, Finding

_BUS = re.compile(r"([0-9A-Fa-f]{4,8}:[0-9A-Fa-f]{2}:[0-9A-Fa-f]{2}\.[0-9])")
_LOST = re.compile(r"GPU is lost|fallen off|Unable to determine the device handle")


def judge(facts: Facts, _: Profile) -> Iterator[Finding]:
    raw = facts.raw("smi")
    said = " ".join((raw.out + " " + raw.err).split()) if raw.code else ""
    if raw.state in (LATE, ABANDONED):
        how = "and SIGKILL does not end it" if raw.state == ABANDONED else "and was ended"
        yield bad("", f"nvidia-smi does not answer within {raw.ms / 1000:.0f} s {how}", value=raw.state)
    elif raw.state == DONE and raw.code:
        bus = _BUS.search(said)
        lost = _LOST.search(said)
        message = f"nvidia-smi ended with {raw.code}: {said[:160]}"
        yield bad(short_bus(bus[1]) if bus else "", message, value=raw.code, action=POWER if lost else "")
    else:
        driver = facts["smi"].driver
        stuck = [
            name
            for name in ("nvlink_status", "nvlink_errors", "topology", "smi_again")
            if name in facts.raws and facts.raws[name].state in (LATE, ABANDONED)
        ]
        yield from all_or(
            (bad("", f"nvidia-smi answers, and then does not ({name})", value=name) for name in stuck),
            f"driver {driver} answers in {raw.ms} ms", value=raw.ms,
        )  # fmt: skip


CHECK = Check("driver.responds", judge, ("smi",), (), "every node with GPUs has a driver that answers", REBOOT)
