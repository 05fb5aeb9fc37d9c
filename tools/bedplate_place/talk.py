"""The conversation with the controller: lines on stdin and stdout."""

from __future__ import annotations

import json
import queue
import sys
import threading
import time

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

INTERVAL_S = 1.0  # between two words on how far it is; also how soon a lost controller is noticed


class Talk:
    """alone: the controller does not hear us any more; told_to_end: it said so."""

    def __init__(self, interval_s: float = INTERVAL_S) -> None:
        self.interval_s = interval_s
        self.alone = False
        self.told_to_end = False
        self.orders: queue.SimpleQueue[dict[str, Any]] = queue.SimpleQueue()
        self._last = 0.0

    def say(self, **words: Any) -> None:
        if self.alone:
            return
        try:
            sys.stdout.write(json.dumps(words) + "\n")
            sys.stdout.flush()
        except OSError:
            self.alone = True

    def have(self, count: int, **more: Any) -> None:
        """Say how far it is, at most once an interval."""
        now = time.monotonic()
        if now >= self._last + self.interval_s:
            self._last = now
            self.say(have=count, **more)

    def listen(self) -> None:
        """From here on stdin holds lines; they are read beside what else goes on."""
        threading.Thread(target=self._read, daemon=True).start()

    def _read(self) -> None:
        for line in sys.stdin.buffer:
            order = json.loads(line)
            if order.get("end"):
                self.told_to_end = True
            self.orders.put(order)
