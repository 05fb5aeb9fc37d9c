"""`ipmitool sel info`, `sel elist` and `sdr elist`: what the BMC remembers and measures."""

from __future__ import annotations

import re
from typing import NamedTuple

from bedplate_agent.parse.text import NotUnderstood, integer, shown

COLUMNS = 6  # of `sel elist`: id, date, time, sensor, event, direction


class Event(NamedTuple):
    number: str
    sensor: str
    text: str
    asserted: bool


class Sensor(NamedTuple):
    name: str
    status: str
    value: str


def parse_info(text: str) -> int:
    """How many entries the log has."""
    if not text.startswith("SEL Information"):
        raise NotUnderstood("no SEL Information")
    found = re.search(r"^Entries\s+: ([0-9]+)\s*$", text, re.MULTILINE)
    last = re.search(r"^Overflow\s+: (true|false)\s*$", text, re.MULTILINE)
    if found is None or last is None or not text.splitlines()[-1].startswith("Supported Cmds"):
        raise NotUnderstood("it does not tell entries, overflow and commands: cut off")
    return integer(found[1], "Entries")


def parse_events(text: str) -> list[Event]:
    """None of an empty log; whether all are there is known from parse_info only."""
    if text.strip() == "SEL has no entries":
        return []
    found = []
    for line in text.splitlines():
        fields = [field.strip() for field in line.split("|")]
        if len(fields) < COLUMNS - 1 or not re.fullmatch(r"[0-9a-f]+", fields[0]):
            raise NotUnderstood(f"no event: {shown(line)}")
        direction = fields[5] if len(fields) >= COLUMNS else "Asserted"
        if direction not in ("Asserted", "Deasserted"):
            raise NotUnderstood(f"neither Asserted nor Deasserted: {shown(line)}")
        found.append(Event(fields[0], fields[3], fields[4], direction == "Asserted"))
    return found


def parse_sensors(text: str) -> list[Sensor]:
    """Five columns a line; the last line tells nothing of its being the last, so checks count."""
    found = []
    for line in text.splitlines():
        fields = [field.strip() for field in line.split("|")]
        if len(fields) != 5 or not re.fullmatch(r"[0-9A-F]+h", fields[1]):  # noqa: PLR2004
            raise NotUnderstood(f"no sensor: {shown(line)}")
        found.append(Sensor(fields[0], fields[2], fields[4]))
    return found
