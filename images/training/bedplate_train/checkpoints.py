"""Checkpoints on disk: directories that are complete or are not checkpoints.

    RUN/checkpoints/step-00000050/            Megatron's distributed checkpoint
                                 /complete.json    written last: step, samples, identities, files with their sizes
    RUN/checkpoints/latest-complete.json      names the newest complete one; replaced in one step after complete.json

Killed at any moment, `latest-complete.json` names a checkpoint whose every file was on disk before. A directory without
complete.json is a save that was cut off; the next save of that step removes it. Only complete checkpoints are counted
and removed by `keep`.
"""

import os
import shutil
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from bedplate_train.faults import Fault, Refused
from bedplate_train.text import read_json, sync_directory, write_json

COMPLETE = "complete.json"
LATEST = "latest-complete.json"


@dataclass(frozen=True)
class Checkpoint:
    """A complete one: where it is and what its record says."""

    path: Path
    record: Mapping[str, Any]

    @property
    def step(self) -> int:
        return int(self.record["step"])


def directory(root: Path, step: int) -> Path:
    return root / f"step-{step:08d}"


def begin(root: Path, step: int) -> Path:
    """An empty directory for a save; what a save that was cut off left there goes away."""
    path = directory(root, step)
    if path.exists():
        shutil.rmtree(path)
    path.mkdir(parents=True)
    return path


def finish(path: Path, record: Mapping[str, Any]) -> Checkpoint:
    """The files are written: put them on disk, say so in complete.json, then name it as the latest."""
    files = sorted(p for p in path.rglob("*") if p.is_file() and p.name != COMPLETE)
    for file in files:
        handle = os.open(file, os.O_RDONLY)
        try:
            os.fsync(handle)
        finally:
            os.close(handle)
    for folder in {path, *(f.parent for f in files)}:
        sync_directory(folder)
    sync_directory(path.parent)
    whole = {**record, "files": {str(f.relative_to(path)): f.stat().st_size for f in files}}
    write_json(path / COMPLETE, whole)
    write_json(path.parent / LATEST, {"checkpoint": path.name, "step": record["step"]})
    return Checkpoint(path, whole)


def complete(path: Path) -> Checkpoint | None:
    """The checkpoint, if it is complete: its record is there and every file has the recorded size."""
    try:
        record = read_json(path / COMPLETE)
        files = record["files"]
        whole = isinstance(record["step"], int) and all((path / n).stat().st_size == s for n, s in files.items())
    except (Refused, KeyError, TypeError, AttributeError, OSError):
        return None
    return Checkpoint(path, record) if whole and files else None


def every(root: Path) -> list[Checkpoint]:
    """Complete ones, oldest first."""
    if not root.is_dir():
        return []
    return [found for path in sorted(root.glob("step-*")) if (found := complete(path))]


def latest(root: Path) -> Checkpoint | None:
    """The newest complete one.

    The record names it. If a machine stopped between complete.json and the record, a newer one is complete all the
    same; that one counts.

    Raises:
        Refused: the record names one that is not complete: somebody changed it.
    """
    found = every(root)
    if (root / LATEST).exists():
        name = str(read_json(root / LATEST).get("checkpoint"))
        if complete(root / name) is None:
            said = f"names {name}, which is not complete (no {COMPLETE}, or files of other sizes)"
            raise Refused([Fault(str(root / LATEST), said, f"remove {LATEST} to go on from the newest complete one")])
    return found[-1] if found else None


def retain(root: Path, keep: int) -> list[Path]:
    """Remove the oldest complete ones; the latest always stays. Its record goes first: half of one is none."""
    gone = []
    for old in every(root)[:-keep]:
        (old.path / COMPLETE).unlink()
        shutil.rmtree(old.path)
        gone.append(old.path)
    return gone
