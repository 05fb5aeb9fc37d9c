"""A maintenance window: days of the week and hours, on the clock of the site.

Example: "mon-fri 22:00-05:00" begins on the evenings of five days and ends on the mornings after them.
"""

import datetime
import re
from collections.abc import Sequence
from dataclasses import dataclass

DAYS = ("mon", "tue", "wed", "thu", "fri", "sat", "sun")
DAY_MINUTES = 24 * 60
WEEK_MINUTES = 7 * DAY_MINUTES
SHAPE = re.compile(r"(?P<days>\S+)\s+(?P<from>\d\d:\d\d)-(?P<to>\d\d:\d\d)")
REMEDY = 'days and hours, as "mon-fri 22:00-05:00" or "sat,sun 00:00-24:00"'


@dataclass(frozen=True)
class Window:
    """days: 0 is Monday; start and length in minutes: one that ends after midnight belongs to the day it began on."""

    text: str
    days: frozenset[int]
    start: int
    length: int

    def holds(self, at: datetime.datetime) -> bool:
        """Whether it is open at a time of the site's clock."""
        return any((_minute(at) - day * DAY_MINUTES - self.start) % WEEK_MINUTES < self.length for day in self.days)

    def opens_in(self, at: datetime.datetime) -> int:
        """Minutes until it opens next; 0 while it is open."""
        if self.holds(at):
            return 0
        return min((day * DAY_MINUTES + self.start - _minute(at)) % WEEK_MINUTES for day in self.days)


def parse_window(text: str) -> Window:
    """Read "mon-fri 22:00-05:00".

    Raises:
        ValueError: it is no window; the message says what is wrong with it.
    """
    shape = SHAPE.fullmatch(text.strip().lower())
    if shape is None:
        raise ValueError(f'"{text}" is no maintenance window')
    start, end = _clock(shape["from"]), _clock(shape["to"])
    if start in (DAY_MINUTES, end):
        raise ValueError(f'"{text}" has no length: it begins at {shape["from"]} and ends at {shape["to"]}')
    return Window(text.strip(), _days(shape["days"]), start, (end - start) % DAY_MINUTES or DAY_MINUTES)


def why_closed(windows: Sequence[Window], at: datetime.datetime) -> str:
    """Why nothing may begin at a time of the site's clock; empty: a window is open, or there are none."""
    if not windows or any(window.holds(at) for window in windows):
        return ""
    first = min(windows, key=lambda window: window.opens_in(at))
    opens = at + datetime.timedelta(minutes=first.opens_in(at))
    return f'{at:%a %H:%M} is in no maintenance window: "{first.text}" opens {opens:%a %d %b %H:%M}'


def _minute(at: datetime.datetime) -> int:
    return at.weekday() * DAY_MINUTES + at.hour * 60 + at.minute


def _clock(text: str) -> int:
    hour, minute = int(text[:2]), int(text[3:])
    if minute > 59 or hour * 60 + minute > DAY_MINUTES:  # noqa: PLR2004  a clock's minutes
        raise ValueError(f'"{text}" is no time of day')
    return hour * 60 + minute


def _days(text: str) -> frozenset[int]:
    found: set[int] = set()
    for part in text.split(","):
        first, dash, last = part.partition("-")
        for word in (first, last) if dash else (first,):
            if word not in DAYS:
                raise ValueError(f'"{word}" is no day of the week')
        begin, end = DAYS.index(first), DAYS.index(last if dash else first)
        found |= {day % len(DAYS) for day in range(begin, end + 1 if end >= begin else end + 1 + len(DAYS))}
    return frozenset(found)
