"""One node and the program on it, in conversation: what it is told, what it has said."""

import contextlib
import json
import queue
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from bedplate.act.distribution import nodeprogram
from bedplate.decide.distribution.slowness import Progress
from bedplate.ssh import Answer, Feed, Target, run_everywhere

LEAVE_S = 10.0  # what a node has to go, when it is told to end


class NodeStays(OSError):
    """A node was told to end, and did not."""


class Orders:
    """What a node is told, line by line; never an end, for a node that sees one has lost its controller."""

    def __init__(self, spec: Mapping[str, Any]) -> None:
        self._rest = nodeprogram.opening(spec)
        self._lines: queue.SimpleQueue[bytes] = queue.SimpleQueue()
        self._told_to_end: float | None = None

    def tell(self, order: Mapping[str, Any]) -> None:
        self._lines.put(json.dumps(order).encode() + b"\n")

    def end(self) -> None:
        if self._told_to_end is None:
            self._told_to_end = time.monotonic()
            self.tell({"end": True})

    @property
    def ending(self) -> bool:
        """Whether it was told to end."""
        return self._told_to_end is not None

    def read(self, size: int, /) -> bytes | None:
        if not self._rest:
            try:
                self._rest = self._lines.get_nowait()
            except queue.Empty:
                if self._told_to_end is not None and time.monotonic() > self._told_to_end + LEAVE_S:
                    raise NodeStays(f"no end within {LEAVE_S:g} s after it was told to") from None
                return None
        chunk, self._rest = self._rest[:size], self._rest[size:]
        return chunk


Said = Callable[["Visit", dict[str, Any]], None]


@dataclass
class Visit:
    """A node's turn. Threads of the connection write here; whoever waits reads."""

    target: Target
    size: int
    began: float = field(default_factory=time.monotonic)
    have: int = 0
    moved: float = field(default_factory=time.monotonic)
    ended: float | None = None
    placed: dict[str, Any] | None = None
    failed: str = ""
    answer: Answer | None = None
    feed: Feed | None = None
    bypassed: str = ""
    tries: int = 0
    heard: float = field(default_factory=time.monotonic)  # when the node last said a word
    over: bool = False
    _line: bytes = b""

    @property
    def progress(self) -> Progress:
        return Progress(self.have, self.size, self.began, self.moved, self.ended)

    def go(self, directory: str, feed: Feed, *, timeout_s: float, said: Said) -> Answer:
        """Run the program once."""
        self.failed, self._line, self.tries = "", b"", self.tries + 1

        def heard(_node: str, data: bytes) -> None:
            *lines, self._line = (self._line + data).split(b"\n")
            for line in lines:
                self._take(line, said)

        visits = run_everywhere(
            [self.target], nodeprogram.command(directory), stdin=feed, timeout_s=timeout_s, heard=heard
        )
        with contextlib.closing(visits):
            self.answer = next(visits)
        return self.answer

    def _take(self, line: bytes, said: Said) -> None:
        try:
            word = json.loads(line)
        except ValueError:
            return  # what the system says at a login; the last word is what counts
        if not isinstance(word, dict):
            return
        self.heard = now = time.monotonic()
        have = word.get("have")
        if isinstance(have, int) and have > self.have:
            self.have, self.moved = have, now
        if "placed" in word and self.ended is None:
            self.placed, self.ended, self.have = word, now, self.size
        if "failed" in word:
            self.failed = str(word["failed"])
        said(self, word)

    @property
    def why(self) -> str:
        """Why the file is not in place there."""
        if self.bypassed:
            return self.bypassed
        if self.failed:
            return self.failed
        return self.answer.why if self.answer else "said nothing"
