"""Signs of life: each rank says where it is, so that a rank that hangs can be named.

A file for each rank, rewritten every second by a thread and at once when the rank goes on. A process that stands still
has an old file; one that is stuck while others wait for it is behind them.
"""

import json
import os
import threading
import time
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

EVERY_S = 1.0
OLD_S = 15.0  # a busy machine may keep a thread waiting for seconds


@dataclass(frozen=True)
class Beat:
    """Where a rank was, when, and how many places it had been to."""

    rank: int
    place: str
    count: int
    time: float
    host: str = ""
    pid: int = 0


class Heart:
    """Beats for this rank; does nothing without a directory."""

    def __init__(self, folder: Path | None, rank: int) -> None:
        self.folder, self.rank = folder, rank
        self.place, self.count = "start", 0
        self._lock = threading.Lock()
        if folder:
            folder.mkdir(parents=True, exist_ok=True)
            self._write()
            threading.Thread(target=self._go_on, daemon=True).start()

    def tell(self, place: str) -> None:
        """The rank goes on to something new."""
        self.place, self.count = place, self.count + 1
        if self.folder:
            self._write()

    def _go_on(self) -> None:
        while True:
            time.sleep(EVERY_S)
            self._write()

    def _write(self) -> None:
        if self.folder is None:
            return
        with self._lock:
            path = self.folder / f"rank-{self.rank:05d}.json"
            beside = path.with_suffix(".new")
            what = {
                "rank": self.rank,
                "place": self.place,
                "count": self.count,
                "time": time.time(),
                "host": os.uname().nodename,
                "pid": os.getpid(),
            }
            beside.write_text(json.dumps(what))
            beside.replace(path)


def read(folder: Path) -> dict[int, Beat]:
    found = {}
    for path in sorted(folder.glob("rank-*.json")):
        try:
            beat = Beat(**json.loads(path.read_text()))
        except (ValueError, TypeError, OSError):
            continue
        found[beat.rank] = beat
    return found


def hung(beats: Mapping[int, Beat], world: int, now: float) -> str:
    """Which ranks keep the others waiting, in a sentence."""
    silent = [rank for rank in range(world) if rank not in beats]
    if silent:
        return f"rank {_listed(silent)} never gave a sign of life"
    still = [b for b in beats.values() if now - b.time > OLD_S]
    if still and len(still) < world:
        return _sentence(still, "stood still")
    furthest = max(b.count for b in beats.values())
    behind = [b for b in beats.values() if b.count < furthest]
    if behind:
        least = min(b.count for b in behind)
        return _sentence([b for b in behind if b.count == least], "was behind the others")
    return f"all {world} ranks were at the same place: {next(iter(beats.values())).place}"


def _sentence(beats: list[Beat], what: str) -> str:
    first = beats[0]
    return f"rank {_listed([b.rank for b in beats])} {what}, at {first.place} (pid {first.pid} on {first.host})"


def _listed(ranks: list[int]) -> str:
    return ", ".join(map(str, ranks[:8])) + (", ..." if len(ranks) > 8 else "")  # noqa: PLR2004 - a server
