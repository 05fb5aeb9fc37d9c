"""The program of the nodes, on this controller: the source of a swarm runs it."""

import json
import subprocess
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

from bedplate.act.distribution import nodeprogram
from bedplate.act.distribution.visit import Orders

LEAVE_S = 30.0


class Local:
    """A conversation with it; words: all that it said so far."""

    def __init__(self, process: "subprocess.Popen[bytes]", spec: Mapping[str, Any]) -> None:
        self.orders = Orders(spec)
        self.last: dict[str, Any] = {}  # of each key, the last word
        self._process = process
        self._over = threading.Event()
        self._threads = [threading.Thread(target=one, daemon=True) for one in (self._write, self._read)]
        for thread in self._threads:
            thread.start()

    def _write(self) -> None:
        stdin = self._process.stdin
        with suppress(OSError):  # it ended: its last word says why
            while stdin and not self._over.is_set():
                if chunk := self.orders.read(65536):
                    stdin.write(chunk)
                    stdin.flush()
                else:
                    self._over.wait(0.1)

    def _read(self) -> None:
        for line in self._process.stdout or ():
            self.last |= json.loads(line)

    def wait(self, timeout_s: float) -> None:
        """Until it has ended by itself; past the deadline it is ended."""
        try:
            self._process.wait(timeout_s)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
        self._over.set()
        for thread in self._threads:
            thread.join()


@contextmanager
def running(directory: Path, spec: Mapping[str, Any]) -> Iterator[Local]:
    """It runs until the end of the block, and is told to end then."""
    # A session of its own: Ctrl-C is for the controller, which tells everybody to end, in order.
    with subprocess.Popen(
        nodeprogram.argv(str(directory)), stdin=subprocess.PIPE, stdout=subprocess.PIPE, start_new_session=True
    ) as process:
        local = Local(process, spec)
        try:
            yield local
        finally:
            local.orders.end()
            local.wait(LEAVE_S)


def asked(directory: Path, spec: Mapping[str, Any], *, timeout_s: float) -> dict[str, Any]:
    """What it says to one question, of each key the last word."""
    with subprocess.Popen(
        nodeprogram.argv(str(directory)), stdin=subprocess.PIPE, stdout=subprocess.PIPE, start_new_session=True
    ) as process:
        local = Local(process, spec)
        local.wait(timeout_s)
    return local.last
