"""Many nodes at once: each has its thread, its tries and its patience; whoever is too slow holds up nobody."""

import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

from bedplate.act.distribution.payload import DIRECTORY, Delivery, Payload
from bedplate.act.distribution.visit import LEAVE_S, Said, Visit
from bedplate.decide.distribution.slowness import Patience, too_slow
from bedplate.ssh import Feed, Target
from bedplate_place import faults

HASH_RATE = 100_000_000  # bytes/s that a node surely hashes; a slow disk's rate, not a processor's
TRIES = 4
PAUSE_S = 2.0  # before the next try
BUSY_S = 90.0  # an earlier transfer notices in 30 s that its controller is gone
AWAY_S = 60.0  # a node that says nothing at all is tried for so long: it may have been restarted
STEP_S = 0.1
LASTING = frozenset({faults.NO_SPACE, faults.MISSING})  # trying again changes nothing

Watch = Callable[[str, int, int], None]  # node, bytes it has, bytes in all; called from other threads
Ended = Callable[[Delivery], None]


class Endable(Feed, Protocol):
    def end(self) -> None:
        """Have the node stop; what it has, stays."""


@dataclass
class FanOut:
    """A payload to targets, at most `width` at once.

    feed: what a try of a node is told. said: called with each word of a node, from its thread.
    """

    payload: Payload
    targets: Sequence[Target]
    feed: Callable[[Visit], Endable]
    said: Said
    width: int
    patience: Patience
    progress: Watch | None = None
    visits: dict[str, Visit] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self._stop = threading.Event()
        self._turns = threading.Semaphore(self.width)
        self._feeds: dict[str, Endable] = {}

    def run(self, ended: Ended) -> None:
        """Until every node has the file, failed, or is by-passed; `ended` is called once for each, from here."""
        threads = [
            # Daemons: one that hangs in spite of everything must not keep the process alive.
            threading.Thread(target=self._serve, args=(target,), daemon=True, name=f"place {target.name}")
            for target in self.targets
        ]
        for thread in threads:
            thread.start()
        waiting = {target.name for target in self.targets}
        try:
            while waiting:
                time.sleep(STEP_S)
                for delivery in self._news(waiting):
                    waiting.remove(delivery.node)
                    ended(delivery)
        finally:
            self._stop.set()
            for name in list(self._feeds):
                self._feeds[name].end()
            until = time.monotonic() + LEAVE_S + 2
            for thread in threads:
                thread.join(max(0.0, until - time.monotonic()))

    def _serve(self, target: Target) -> None:
        with self._turns:
            if self._stop.is_set():
                return
            visit = self.visits[target.name] = Visit(target, self.payload.size)
            try:
                self._try(visit)
            except Exception as fault:  # noqa: BLE001  one delivery a node, always
                visit.failed = f"{type(fault).__name__}: {fault}"
            visit.over = True

    def _try(self, visit: Visit) -> None:
        timeout_s = 2 * self.patience.whole_s(self.payload.size) + self.payload.size / HASH_RATE
        busy_until = time.monotonic() + BUSY_S
        while not (self._stop.is_set() or visit.bypassed or visit.placed):
            feed = self._feeds[visit.target.name] = self.feed(visit)
            answer = visit.go(DIRECTORY, feed, timeout_s=timeout_s, said=self._hear)
            away = answer.code is None and not answer.out and time.monotonic() < visit.heard + AWAY_S
            if away or (answer.code == faults.BUSY and time.monotonic() < busy_until):
                visit.tries -= 1
            elif visit.placed or answer.code in LASTING or visit.tries >= TRIES:
                return
            self._stop.wait(PAUSE_S)

    def _hear(self, visit: Visit, word: dict[str, Any]) -> None:
        self.said(visit, word)
        if self.progress and ("have" in word or "placed" in word):
            self.progress(visit.target.name, visit.have, self.payload.size)

    def _news(self, waiting: set[str]) -> list[Delivery]:
        known = {name: visit for name, visit in list(self.visits.items()) if name in waiting}
        now = time.monotonic()
        failed = [name for name, visit in self.visits.items() if visit.ended is None and name not in waiting]
        progress = {name: visit.progress for name, visit in list(self.visits.items())}
        for name, why in too_slow(progress, now, self.patience, failed).items():
            if not known[name].over:
                known[name].bypassed = why
                self._feeds[name].end()
        return [self._delivery(visit) for visit in known.values() if visit.placed or visit.over or visit.bypassed]

    def _delivery(self, visit: Visit) -> Delivery:
        placed = visit.placed or {}
        right = placed.get("placed") == self.payload.sha256
        return Delivery(
            node=visit.target.name,
            seconds=(visit.ended or time.monotonic()) - visit.began,
            why="" if right else visit.why,
            bypassed=bool(visit.bypassed) and not right,
            code=visit.answer.code if visit.answer else None,
            have=visit.have,
            received=tuple(sorted(placed.get("received", {}).items())),
        )
