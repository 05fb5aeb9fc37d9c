"""Ranks of a question: started by torchrun, given a time limit, ended and named when one of them hangs."""

import os
import signal
import subprocess
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from bedplate_train import beats
from bedplate_train.launch import Place, free_port, torchrun

GRACE_S = 20.0  # from SIGTERM to SIGKILL


@dataclass(frozen=True)
class Ended:
    """How the ranks ended: status of torchrun, or who hung."""

    returned: int
    seconds: float
    hung: str
    log: Path

    @property
    def fine(self) -> bool:
        return self.returned == 0 and not self.hung

    def tail(self, lines: int = 12) -> str:
        """The end of the log, without what libraries warn about."""
        kept = [line for line in self.log.read_text(errors="replace").splitlines() if "WARNING" not in line]
        return "\n".join(kept[-lines:])


def ranks(
    program: Sequence[str], count: int, limit_s: float, folder: Path, environment: Mapping[str, str] | None = None
) -> Ended:
    """Run a program on every device of this machine, and wait for it no longer than its limit."""
    folder.mkdir(parents=True, exist_ok=True)
    signs = folder / "beats"
    for old in signs.glob("rank-*"):
        old.unlink()
    log = folder / "log.txt"
    command = torchrun(Place(1, 0, "127.0.0.1", free_port()), count, int(GRACE_S / 2), program)
    given = {**os.environ, "OMP_NUM_THREADS": "1", "BEDPLATE_TRAIN_BEATS": str(signs), **(environment or {})}
    began = time.monotonic()
    with log.open("ab") as out:
        process = subprocess.Popen(command, stdout=out, stderr=out, env=given, start_new_session=True)
    named = ""
    try:
        process.wait(limit_s)
    except subprocess.TimeoutExpired:
        named = beats.hung(beats.read(signs), count, time.time())
    finally:
        end(process)
    return Ended(process.returncode, time.monotonic() - began, named, log)


def end(process: "subprocess.Popen[bytes]") -> None:
    """The whole session: torchrun and its ranks, also those that no longer hear it."""
    for number, wait_s in ((signal.SIGTERM, GRACE_S), (signal.SIGKILL, GRACE_S)):
        try:
            os.killpg(process.pid, number)
        except ProcessLookupError:
            break
        try:
            process.wait(wait_s)
        except subprocess.TimeoutExpired:
            continue
    process.wait()
