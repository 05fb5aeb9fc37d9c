"""The one door to other programs: argv lists, a deadline, and failures that can be pasted."""

import contextlib
import shlex
import subprocess
import tempfile
import threading
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO

from bedplate.model.faults import BedplateError

DEADLINE_S = 600.0
TAIL_BYTES = 2000  # of a log: what an error shows


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
    log: Path | None = None,
) -> Finished:
    """Run a program to its end and return what it said (text, UTF-8, undecodable bytes replaced).

    log: a file that command and output are appended to while it runs; `out` is then empty, `err` the log's end.

    Raises:
        ProcessFailed: it is not there, ended with another code than 0 (with check), or ran past timeout_s.
    """
    words = tuple(str(word) for word in argv)
    try:
        with _output(log, words) as output:
            done = subprocess.run(
                words,
                check=False,
                cwd=cwd,
                env=env,
                input=stdin,
                stdout=output or subprocess.PIPE,
                stderr=subprocess.STDOUT if output else subprocess.PIPE,
                timeout=timeout_s,
                text=True,
                encoding="utf-8",
                errors="replace",
            )
    except FileNotFoundError as fault:
        raise ProcessFailed(Finished(words, 127, "", str(fault)), f"no program {words[0]}") from fault
    except subprocess.TimeoutExpired as fault:
        # What it said until then, both ways: which step it hangs in is often in the one that is not an error.
        so_far = "".join(_end_of(said) for said in (fault.stdout, fault.stderr)) or _tail(log)
        raise ProcessFailed(Finished(words, 124, "", so_far), f"no end after {timeout_s:g} s") from fault
    finished = Finished(words, done.returncode, done.stdout or "", done.stderr or _tail(log))
    if check and finished.code:
        raise ProcessFailed(finished, f"{words[0]} ended with {finished.code}")
    return finished


@contextmanager
def streaming(
    argv: Sequence[str | Path],
    *,
    stdin: BinaryIO | None = None,
    feeds: bool = False,
    timeout_s: float,
    env: Mapping[str, str] | None = None,
    log: Path | None = None,
) -> Iterator[BinaryIO]:
    """A program whose bytes are read while it runs (its output), or written (feeds: its input, with output to log).

    Leaving the block waits for its end; leaving it by an exception kills it.

    Raises:
        ProcessFailed: it is not there, ended with another code than 0, or ran past timeout_s.
    """
    words = tuple(str(word) for word in argv)
    overdue = threading.Event()
    with _output(log, words) as output, tempfile.TemporaryFile() as said:
        try:
            process = subprocess.Popen(
                words,
                stdin=subprocess.PIPE if feeds else stdin or subprocess.DEVNULL,
                stdout=(output or said) if feeds else subprocess.PIPE,
                stderr=output or said,
                env=env,
            )
        except FileNotFoundError as fault:
            raise ProcessFailed(Finished(words, 127, "", str(fault)), f"no program {words[0]}") from fault
        pipe = process.stdin if feeds else process.stdout
        assert pipe is not None  # noqa: S101

        def end() -> None:
            overdue.set()
            process.kill()

        timer = threading.Timer(timeout_s, end)
        timer.daemon = True
        timer.start()
        broken: OSError | None = None
        try:
            try:
                yield pipe  # type: ignore[misc]
                pipe.close()
            except BrokenPipeError as fault:  # it ended first, and says why
                broken = fault
            process.wait()
        except BaseException:
            process.kill()
            process.wait()
            raise
        finally:
            timer.cancel()
            with contextlib.suppress(OSError):
                pipe.close()
        said.seek(0)
        finished = Finished(words, process.returncode, "", said.read().decode(errors="replace") or _tail(log))
    if overdue.is_set():
        raise ProcessFailed(finished, f"no end after {timeout_s:g} s")
    if finished.code or broken:
        raise ProcessFailed(finished, f"{words[0]} ended with {finished.code}")


@contextmanager
def _output(log: Path | None, words: Sequence[str]) -> Iterator[BinaryIO | None]:
    if log is None:
        yield None
        return
    with log.open("ab") as output:
        output.write(f"$ {shlex.join(words)}\n".encode())
        output.flush()
        yield output


def _end_of(said: bytes | str | None) -> str:
    """The end of what was said; that of a killed program comes as bytes, also where text was asked for."""
    return (said.decode(errors="replace") if isinstance(said, bytes) else said or "")[-TAIL_BYTES // 2 :]


def _tail(log: Path | None) -> str:
    """The end of a log, in whole lines."""
    if log is None:
        return ""
    with log.open("rb") as file:
        file.seek(max(0, file.seek(0, 2) - TAIL_BYTES))
        return file.read().decode(errors="replace").partition("\n")[2]
