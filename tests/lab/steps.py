"""Progress of long steps: a line when one starts, a sign of life while it runs, its time when it ends."""

import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

SIGN_OF_LIFE_S = 10.0


class Steps:
    """Prints `lab  12.3s  text`: seconds since the start, so that a log shows where the time went."""

    def __init__(self, echo: Callable[[str], None]) -> None:
        self._echo = echo
        self._start = time.monotonic()

    @property
    def seconds(self) -> float:
        return time.monotonic() - self._start

    def say(self, text: str) -> None:
        self._echo(f"lab {self.seconds:6.1f}s  {text}")

    @contextmanager
    def step(self, title: str, *, expected: str = "") -> Iterator[None]:
        """Say that a step begins (with what it usually takes, when that is long) and what it took."""
        begun, ended = time.monotonic(), threading.Event()
        self.say(title + (f" ({expected})" if expected else ""))

        def sign_of_life() -> None:
            while not ended.wait(SIGN_OF_LIFE_S):
                self.say(f"{title}: still at it, {time.monotonic() - begun:.0f} s")

        thread = threading.Thread(target=sign_of_life, daemon=True)
        thread.start()
        try:
            yield
        finally:
            ended.set()
            thread.join()
        if expected:
            self.say(f"{title}: done in {time.monotonic() - begun:.1f} s")
