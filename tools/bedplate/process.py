"""The one door to other programs: argv lists, a deadline, and failures that can be pasted."""

import shlex
import subprocess
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from bedplate.model.faults import BedplateError

DEADLINE_S = 600.0


@dataclass(frozen=True)
class Finished:
    argv: tuple[str, ...]
    code: int
    out: str
    err: str


class ProcessFailed(BedplateError):
    """A program failed; the message ends with the command, ready to paste."""

    def __init__(self, finished: Finished, why: str) -> None:
        self.finished = finished
        said = (finished.err.strip() or finished.out.strip())[-2000:]
        super().__init__(f"{why}: {said}\n  command: {shlex.join(finished.argv)}")


def run(
    argv: Sequence[str | Path],
    *,
    check: bool = True,
    timeout_s: float = DEADLINE_S,
    cwd: Path | None = None,
    env: Mapping[str, str] | None = None,
    stdin: str | None = None,
) -> Finished:
    """Run a program to its end and return what it said (text, UTF-8, undecodable bytes replaced).

    Raises:
        ProcessFailed: it is not there, ended with another code than 0 (with check), or ran past timeout_s.
    """
    words = tuple(str(word) for word in argv)
    try:
        done = subprocess.run(
            words,
            check=False,
            cwd=cwd,
            env=env,
            input=stdin,
            capture_output=True,
            timeout=timeout_s,
            text=True,
            encoding="utf-8",
            errors="replace",
        )
    except FileNotFoundError as fault:
        raise ProcessFailed(Finished(words, 127, "", str(fault)), f"no program {words[0]}") from fault
    except subprocess.TimeoutExpired as fault:
        raise ProcessFailed(Finished(words, 124, "", ""), f"no end after {timeout_s:g} s") from fault
    finished = Finished(words, done.returncode, done.stdout, done.stderr)
    if check and finished.code:
        raise ProcessFailed(finished, f"{words[0]} ended with {finished.code}")
    return finished
