"""A pace that is not exceeded: after so many bytes, so much time has passed at least."""

from __future__ import annotations

import time


class Pace:
    """rate: bytes/s; 0: as fast as it goes. A pause is no credit: after one it starts anew."""

    def __init__(self, rate: int) -> None:
        self.rate = rate
        self._due = 0.0

    def after(self, count: int) -> None:
        if self.rate:
            now = time.monotonic()
            self._due = max(now, self._due) + count / self.rate
            time.sleep(max(0.0, self._due - now - 0.1))  # a tenth of a second ahead at most: small sleeps are inexact
