"""The file from stdin: through the connection that the program itself came by."""

from __future__ import annotations

import os
import sys

from bedplate_place.files import Wanted, turn
from bedplate_place.pace import Pace

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

    from bedplate_place.talk import Talk

KIND = "part"
CHUNK = 1024 * 1024


def run(directory: str, spec: dict[str, Any], talk: Talk) -> None:
    wanted = Wanted(directory, spec)
    with turn(directory):
        if not wanted.there():
            _receive(wanted, Pace(spec["rate"]), talk)
    talk.say(placed=wanted.sha256, size=wanted.size)


def _receive(wanted: Wanted, pace: Pace, talk: Talk) -> None:
    source: Any = sys.stdin.buffer
    wanted.check_space(KIND)
    part = wanted.part(KIND)
    with open(part, "ab") as file:
        if file.tell() >= wanted.size:
            file.truncate(0)  # longer than it may be, or whole and yet not published: not worth a second thought
        have = os.fstat(file.fileno()).st_size
        talk.say(offset=have)
        while have < wanted.size and (chunk := source.read1(CHUNK)):
            file.write(chunk)
            have += len(chunk)
            talk.have(have)
            pace.after(len(chunk))
    talk.say(have=have)
    wanted.check(part)
    wanted.publish(part)
