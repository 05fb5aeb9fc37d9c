"""What an Xid means for a node: NVIDIA's catalogue of branch 590 as health checkers use it, by class.

Where sources disagree: 64 is RMA (awslabs/awsome-distributed-ai PR#1190; the catalogue says reset), 92 is watched. A
code that stands in no class is not known to be harmless, and is told.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

from bedplate_agent.parse.journal import Xid, recovery_action
from bedplate_agent.verdict import FAIL, PASS, POWER, REBOOT, RESET, RMA, WARN, WATCH

HARMLESS = frozenset({13, 31, 32, 37, 38, 39, 40, 41, 43, 44, 45, 66, 68, 69, 93, 121, 137, 141, 147, 148, 160, 161})
WATCHED = frozenset({63, 92, 162, 163, 164, 165, 185})
RESETS = frozenset({46, 48, 62, 74, 94, 95, 109, 110, 119, 120, 136, 140, 143, 155, 156, 158, 171, 172})
OTHERS = {54: RMA, 64: RMA, 79: POWER, 151: REBOOT, 167: POWER}
NVLINK5 = range(144, 151)
RECOVERY = 154
RECOVERIES = {0: "", 1: RESET, 2: REBOOT, 3: RESET, 4: RESET}
ROOTS = frozenset({48, 79, 95, 149})  # of several at once, these are not the consequence of another
BURST_US = 180 * 1_000_000  # a silence this long ends a burst; NVIDIA Fleet Intelligence uses the same window


class Judged(NamedTuple):
    """One Xid; victim_of: the one that came before it in its burst, on another GPU."""

    xid: Xid
    verdict: str
    action: str
    why: str
    victim_of: Xid | None = None


def judged(xids: Iterable[Xid]) -> list[Judged]:
    """All that is no PASS; in a burst, the first culprit and those that only followed it."""
    found = []
    last_recovery: dict[str, Xid] = {}
    for xid in sorted(xids, key=lambda x: x.at_us):
        if xid.code == RECOVERY:
            last_recovery[xid.bus] = xid  # each says what is to be done from now on
            continue
        verdict, action, why = one(xid)
        if verdict != PASS:
            found.append(Judged(xid, verdict, action, why))
    found = [*_attributed([j for j in found if j.verdict == FAIL]), *(j for j in found if j.verdict != FAIL)]
    for xid in last_recovery.values():
        asked = recovery_action(xid.text)
        step = RECOVERIES.get(asked[0]) if asked else None
        if step is None:
            found.append(Judged(xid, FAIL, REBOOT, "asks for a recovery that is not known here"))
        elif step:
            found.append(Judged(xid, FAIL, step, f"the driver asks for {asked[1] if asked else ''}"))
    return found


def one(xid: Xid) -> tuple[str, str, str]:  # noqa: PLR0911  a table of classes
    """Verdict, action and why of one Xid by itself."""
    code = xid.code
    if code in NVLINK5 and code not in HARMLESS:
        if code == 150 or xid.severity != "Nonfatal":  # noqa: PLR2004  MSE, MFDE
            return FAIL, RESET, f"NVLink {xid.severity.lower() or 'of unknown severity'}"
        return WARN, WATCH, "NVLink nonfatal"
    if code in HARMLESS:
        return PASS, "", ""
    if code in WATCHED:
        return WARN, WATCH, "is watched"
    if code in RESETS:
        return FAIL, RESET, "needs a reset"
    if code in OTHERS:
        return FAIL, OTHERS[code], "needs more than a reset"
    return WARN, WATCH, "is in no class that is known here"


def _attributed(fatal: list[Judged]) -> list[Judged]:
    done: list[Judged] = []
    burst: list[Judged] = []
    for judgement in fatal:
        if burst and judgement.xid.at_us - burst[-1].xid.at_us > BURST_US:
            done += _burst(burst)
            burst = []
        burst.append(judgement)
    return done + _burst(burst)


def _burst(burst: list[Judged]) -> list[Judged]:
    if not burst:
        return []
    root = next((j for j in burst if j.xid.code in ROOTS), burst[0])
    return [
        j if j.xid.bus == root.xid.bus else j._replace(verdict=WARN, action=WATCH, victim_of=root.xid) for j in burst
    ]
