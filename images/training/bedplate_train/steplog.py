"""The step log: a JSON line for each step, appended by the rank that knows the loss.

What a line says, and over what: docs/training.md has the table. A resumed run appends to the same file, so a step that
was run twice stands in it twice, the second time with `attempt` one higher.
"""

import json
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any


@dataclass(frozen=True)
class Resumption:
    """Samples that a resumed run sees again, and those that nobody saw: from the log's last line and its own start."""

    attempt: int
    from_step: int
    repeated: int
    skipped: int


def lines(path: Path) -> Iterator[dict[str, Any]]:
    """Every whole line; a run that was killed may have left half a line, at the end or before an attempt."""
    try:
        text = path.read_text(encoding="utf-8", errors="replace")
    except FileNotFoundError:
        return
    for line in text.splitlines():
        try:
            found = json.loads(line)
        except ValueError:
            continue
        if isinstance(found, dict) and isinstance(found.get("step"), int):
            yield found


def resumption(path: Path, from_step: int, consumed: int) -> Resumption:
    """What the samples from `consumed` on mean, after what the log says was run before."""
    attempt, seen = 0, None
    for line in lines(path):
        if line.get("attempt", 1) >= attempt:
            attempt = line.get("attempt", 1)
            seen = line["samples"][1] + 1  # an attempt ends with its last line
    if seen is None:
        return Resumption(1, from_step, 0, 0)
    return Resumption(attempt + 1, from_step, max(0, seen - consumed), max(0, consumed - seen))


class StepLog:
    """Appends; each line is one write, and reaches the file at once."""

    def __init__(self, path: Path) -> None:
        path.parent.mkdir(parents=True, exist_ok=True)
        whole = not path.exists() or path.read_bytes()[-1:] in {b"", b"\n"}
        self.file = path.open("ab", buffering=0)
        if not whole:
            self.file.write(b"\n")  # after a line that a kill cut off

    def append(self, line: dict[str, Any]) -> None:
        self.file.write((json.dumps(line, sort_keys=True, allow_nan=False) + "\n").encode())

    def close(self) -> None:
        self.file.close()
