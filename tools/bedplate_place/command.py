"""Reads what is asked for, and does it."""

from __future__ import annotations

import importlib
import json
import os
import sys

from bedplate_place.faults import FAULT, Failed
from bedplate_place.talk import Talk

# what is asked for -> the module that does it
MODULES = {
    "probe": "probe", "stdin": "stdin", "http": "http_", "torrent": "torrent", "seed": "torrent_seed",
    "apply": "apply", "collect": "collect",
}  # fmt: skip


def main(directory: str) -> None:
    """One order on stdin; ends the process."""
    spec = json.loads(sys.stdin.buffer.readline())
    talk = Talk(spec.get("interval_s", 1.0))
    code, why = 0, ""
    try:
        importlib.import_module(f"bedplate_place.{MODULES[spec['do']]}").run(directory, spec, talk)
    except Failed as fault:
        code, why = fault.code, str(fault)
    except OSError as fault:
        code, why = FAULT, str(fault)
    except Exception as fault:  # noqa: BLE001  a last word, always
        code, why = FAULT, f"{type(fault).__name__}: {fault}"
    if why:
        talk.say(failed=why)
    # Not sys.exit: a thread may wait for stdin, and an interpreter that shuts down beside it aborts.
    os._exit(code)
