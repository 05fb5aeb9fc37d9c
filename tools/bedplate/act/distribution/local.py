"""The program of the nodes, on this controller: the source of a swarm runs it."""

import json
import subprocess
import threading
from collections.abc import Callable, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

from bedplate.act.distribution import nodeprogram
from bedplate.act.distribution.visit import Orders

LEAVE_S = 30.0


class Local:
    """A conversation with it; last: of each key, the last word that it said so far.

    died: is told when it has ended and nobody had asked it to; in a thread of its own.
    """

    def __init__(
        self, directory: Path, spec: Mapping[str, Any], died: Callable[["Local"], None] | None = None
    ) -> None:  # fmt: skip
        self.orders = Orders(spec)
        self.last: dict[str, Any] = {}
        self._died = died
        self._over = threading.Event()
        # A session of its own: Ctrl-C is for the controller, which tells everybody to end, in order.
        self._process = subprocess.Popen(
            nodeprogram.argv(str(directory)), stdin=subprocess.PIPE, stdout=subprocess.PIPE, start_new_session=True
        )
        self._threads = [threading.Thread(target=one, daemon=True) for one in (self._write, self._read)]
        for thread in self._threads:
            thread.start()

    def _write(self) -> None:
        stdin = self._process.stdin
        assert stdin is not None  # noqa: S101  a pipe
        with suppress(OSError):  # it ended: its last word says why
            while not self._over.is_set():
                if chunk := self.orders.read(65536):
                    stdin.write(chunk)
                    stdin.flush()
                else:
                    self._over.wait(0.1)
        with suppress(OSError):  # what it did not read is written once more here, and not where nobody expects it
            stdin.close()

    def _read(self) -> None:
        assert self._process.stdout is not None  # noqa: S101  a pipe
        with self._process.stdout as said:
            for line in said:
                self.last |= json.loads(line)
        if self._died is not None and not self.orders.ending and not self._over.is_set():
            # Not in this thread: whoever is told may wait for this one.
            threading.Thread(target=self._died, args=(self,), daemon=True).start()

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

    def close(self) -> None:
        """Tell it to end, and wait for that."""
        self.orders.end()
        self.wait(LEAVE_S)


def asked(directory: Path, spec: Mapping[str, Any], *, timeout_s: float) -> dict[str, Any]:
    """What it says to one question, of each key the last word."""
    local = Local(directory, spec)
    local.wait(timeout_s)
    return local.last
