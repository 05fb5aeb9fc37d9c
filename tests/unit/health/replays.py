"""The replays of this folder: bases (a whole healthy node each) and cases (what differs from one, and the verdict)."""

import json
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

from bedplate_agent import recording
from bedplate_agent.command import judged
from bedplate_agent.recording import Record
from bedplate_agent.sinks import Result

FOLDER = Path(__file__).with_name("cases")
BASES = sorted(path.name for path in FOLDER.glob("base-*"))
FAULTS = sorted(path.name for path in FOLDER.glob("fault-*"))
HEALTHY = sorted(path.name for path in FOLDER.glob("healthy-*"))


@dataclass(frozen=True)
class Case:
    verdict: str
    check: str = ""
    entity: str = ""
    action: str = ""
    what: str = ""


@cache
def replay(name: str) -> Record:
    return recording.load(str(FOLDER / name))


def case(name: str) -> Case:
    return Case(**json.loads((FOLDER / name / "record.json").read_text())["case"])


def result(record: Record, **profile: Any) -> Result:
    found: Result = judged(dict(record.raws), {**record.profile, **profile}, record.classes, "0123456789abcdef")
    return found
