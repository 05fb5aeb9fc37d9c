"""Reads what is asked for, and does it."""

from __future__ import annotations

import importlib
import json
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
    try:
        importlib.import_module(f"bedplate_place.{MODULES[spec['do']]}").run(directory, spec, talk)
    except Failed as fault:
        end(talk, fault.code, str(fault))
    except OSError as fault:
        end(talk, FAULT, str(fault))
    sys.exit(0)


def end(talk: Talk, code: int, why: str) -> None:
    talk.say(failed=why)
    sys.exit(code)
