"""Whether the kept projection is what the events say: folded anew, while `verify` judges the same events.

Of a large ledger a process of its own folds, on another core: judging a million events and folding them take about
as long. It reads them unjudged, so what it says counts only where nothing was found damaged.
"""

import sqlite3
from collections.abc import Iterator, Mapping
from concurrent.futures import Future, ProcessPoolExecutor
from contextlib import closing
from multiprocessing import get_context
from types import TracebackType
from typing import Self

from bedplate.decide.fold import FOLDED, fold
from bedplate.decide.ledgerhistory import NO_ROWS, Change, History, chained
from bedplate.ledger.projection import Projection, reading, usable
from bedplate.ledger.store import Ledger
from bedplate.ledger.uncollected import uncollected

LARGE = 50_000  # events: below, a second process takes longer to begin than the first to fold
AGAIN = "(run: bedplate ledger rebuild)"


class Comparison:
    """The comparison of a ledger's projection, under way while it is open.

    Example:
        with Comparison(url, ledger) as kept:
            found = ledger.examine(heads=kept.heads)
            wrong = [] if found.damage else kept.wrong()
    """

    def __init__(self, url: str, ledger: Ledger) -> None:
        self._url = url
        self._ledger = ledger
        self._pool: ProcessPoolExecutor | None = None
        self._waiting: Future[list[str]] | None = None
        self.reaches: tuple[int, str] | None = None
        """The event that the projection says it reaches; None where there is none to compare."""
        self._fault: str | None = None
        if ledger.saved is not None and ledger.saved.exists():
            try:
                with closing(reading(ledger.saved)) as raw:
                    self.reaches = Projection(raw, ledger.saved).head if usable(raw) else None
            except sqlite3.Error as fault:
                self._fault = f"projection {ledger.saved}: {fault}: it cannot be used"

    @property
    def heads(self) -> list[tuple[int, str, str]]:
        """The event that it reaches, as one that was noted: the ledger must have it."""
        return [] if self.reaches is None else [(*self.reaches, f"the kept projection {self._ledger.saved}")]

    def wrong(self) -> list[str]:
        """What of the projection is not what the events say, of a ledger that is not damaged."""
        if self._fault is not None:
            return [self._fault]
        if self.reaches is None:
            return []
        return differences(self._ledger) if self._waiting is None else self._waiting.result()

    def __enter__(self) -> Self:
        if self.reaches is not None and self.reaches[0] >= LARGE:
            # Spawned, not forked: a connection to SQLite does not survive a fork.
            self._pool = ProcessPoolExecutor(1, mp_context=get_context("spawn"))
            self._waiting = self._pool.submit(_differences_of, self._url)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, fault: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._pool is not None:
            self._pool.shutdown()


def differences(ledger: Ledger) -> list[str]:
    """What of the kept projection is not what the events up to its head say."""
    path = ledger.saved
    assert path is not None  # noqa: S101  asked of a ledger that has one
    try:
        with closing(reading(path)) as raw, uncollected():
            return [f"projection {path}: {what} {AGAIN}" for what in _unlike(Projection(raw, path), ledger)]
    except (sqlite3.Error, ValueError, KeyError, TypeError) as fault:
        return [f"projection {path}: cannot be read: {fault} {AGAIN}"]


def _differences_of(url: str) -> list[str]:
    with Ledger.read(url) as ledger:
        return differences(ledger)


def _unlike(kept: Projection, ledger: Ledger) -> Iterator[str]:
    history = History()
    events = ledger.unjudged(kinds=FOLDED, until=kept.head[0])
    said, there = fold(events, changed=history.changed), kept.world()
    yield from _unlike_members("node", there.nodes, said.nodes)
    yield from _unlike_members("node before its change", there.before, said.before)
    yield from _unlike_members("rollout", there.rollouts, said.rollouts)
    yield from _unlike_members("environment", there.names, said.names)
    digest = NO_ROWS
    for row in kept.raw.execute(
        "SELECT n.name, h.event, h.status, e.identity FROM history h JOIN node n ON n.number = h.node"
        " LEFT JOIN environment e ON e.number = h.runs ORDER BY h.seq"
    ):
        digest = chained(digest, Change(*row))
    if digest != history.digest:
        yield "its history is not what the events say"


def _unlike_members[K](what: str, kept: Mapping[K, object], said: Mapping[K, object]) -> Iterator[str]:
    for name in sorted(kept.keys() | said.keys(), key=str):
        if kept.get(name) != said.get(name):
            yield f"{what} {name} is not what the events say"
