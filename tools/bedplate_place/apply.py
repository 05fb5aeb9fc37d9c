"""A file out of the one before it and a patch, on this node."""

from __future__ import annotations

import os
import subprocess

from bedplate_place.faults import FAULT, MISSING, Failed
from bedplate_place.files import Wanted, regular_size, turn

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

    from bedplate_place.talk import Talk

KIND = "patched"


def run(directory: str, spec: dict[str, Any], talk: Talk) -> None:
    wanted = Wanted(directory, spec)
    base, patch = os.path.join(directory, spec["base"]), os.path.join(directory, spec["patch"])
    with turn(directory):
        if not wanted.there():
            wanted.check_space(KIND)
            for path in (base, patch):
                if regular_size(path) is None:
                    raise Failed(MISSING, f"{path} is not there")
            part = wanted.part(KIND)
            # -B: how much of the base it may look back into; the same as when the patch was made.
            command = ["xdelta3", "-d", "-f", "-B", str(spec["window"]), "-s", base, patch, part]
            try:
                done = subprocess.run(command, capture_output=True, text=True, check=False, stdin=subprocess.DEVNULL)
            except FileNotFoundError as fault:
                raise Failed(MISSING, f"{fault} (apt-get install xdelta3)") from fault
            if done.returncode:
                raise Failed(FAULT, f"xdelta3: {done.stderr.strip()[-500:]}")
            wanted.check(part)
            wanted.publish(part)
        if regular_size(patch) is not None:
            os.unlink(patch)
    talk.say(placed=wanted.sha256, size=wanted.size)
