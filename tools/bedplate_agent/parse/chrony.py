"""`chronyc -c tracking`: one line of 14 fields."""

from __future__ import annotations

from typing import NamedTuple

from bedplate_agent.parse.text import NotUnderstood, integer, number, shown

FIELDS = 14
LEAPS = ("Normal", "Insert second", "Delete second", "Not synchronised")


class Tracking(NamedTuple):
    """offset_s: what the system clock is off (positive: it is fast); dispersion_s: how far that may be wrong."""

    reference: str
    source: str
    stratum: int
    offset_s: float
    root_delay_s: float
    dispersion_s: float
    leap: str


def parse(text: str) -> Tracking:
    lines = text.splitlines()
    fields = lines[0].split(",") if len(lines) == 1 else []
    if len(fields) != FIELDS:
        raise NotUnderstood(f"{FIELDS} fields in one line were asked for, there is {shown(text)}")
    if fields[13] not in LEAPS:
        raise NotUnderstood(f"leap status {shown(fields[13])}")
    # 4: system time, 10: root delay, 11: root dispersion; chronyc(1), "tracking" in the order of its text
    return Tracking(
        fields[0], fields[1], integer(fields[2], "stratum"), number(fields[4], "system time"),
        number(fields[10], "root delay"), number(fields[11], "root dispersion"), fields[13],
    )  # fmt: skip
