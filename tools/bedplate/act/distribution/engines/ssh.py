"""Through the ssh connection itself: needs nothing but ssh, and the controller encrypts each copy (80 MB/s a core)."""

import queue
import threading
from typing import Any

from bedplate.act.distribution import nodeprogram
from bedplate.act.distribution.engine import Job
from bedplate.act.distribution.fanout import Ended, FanOut
from bedplate.act.distribution.visit import NodeStays, Visit


class FileFeed:
    """What the node is asked, and then the file, from where the node says that it goes on."""

    def __init__(self, job: Job, count: "Counter") -> None:
        rate = job.caps.for_each(min(job.width, len(job.targets)))
        self._opening = nodeprogram.opening({"do": "stdin", **job.payload.spec, "rate": rate})
        self._offsets: queue.SimpleQueue[int] = queue.SimpleQueue()
        self._path, self._count, self._ended = job.payload.path, count, False
        self._offset: int | None = None

    def begin(self, offset: int) -> None:
        self._offsets.put(offset)

    def end(self) -> None:
        self._ended = True

    def read(self, size: int, /) -> bytes | None:
        if self._ended:
            raise NodeStays("stopped")
        if self._opening:
            chunk, self._opening = self._opening[:size], self._opening[size:]
            self._count.add(len(chunk))
            return chunk
        if self._offset is None:
            try:
                self._offset = self._offsets.get_nowait()
            except queue.Empty:
                return None
        with self._path.open("rb") as file:  # each time: nobody closes a feed
            file.seek(self._offset)
            chunk = file.read(size)
        self._offset += len(chunk)
        self._count.add(len(chunk))
        return chunk or None  # no end: the node knows how long it is, and is still to say what came of it


class Counter:
    """Bytes, from several threads."""

    def __init__(self) -> None:
        self.total, self._lock = 0, threading.Lock()

    def add(self, count: int) -> None:
        with self._lock:
            self.total += count


def move(job: Job, ended: Ended) -> int:
    count = Counter()
    feeds: dict[str, FileFeed] = {}

    def feed(visit: Visit) -> FileFeed:
        feeds[visit.target.name] = FileFeed(job, count)
        return feeds[visit.target.name]

    def said(visit: Visit, word: dict[str, Any]) -> None:
        if "offset" in word:
            feeds[visit.target.name].begin(word["offset"])

    FanOut(job.payload, job.targets, feed, said, job.width, job.patience, job.progress).run(ended)
    return count.total
