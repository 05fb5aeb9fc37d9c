"""The ledger: append-only events in one table, of a SQLite file or of PostgreSQL.

Invariants:
- An append is one transaction that reads the head inside it: all of its events are recorded, or none.
- Writers take turns (turn.py; a lock of PostgreSQL), and the database refuses what does not follow the head
  (schema.py): no fork.
- What was recorded survives a power loss: WAL with synchronous=FULL, synchronous_commit; one append costs one fsync,
  whatever the number of its events.
- An event is handed out only while its bytes hash to what was recorded; the whole chain is for `verify`.
- A connection is never used across a fork: SQLite's locks belong to the process that took them.

Example:
    with Ledger.open("sqlite:////srv/site/ledger.sqlite3") as ledger:
        ledger.append(Draft("node.done", ("node:n1", "rollout:7"), {"seconds": 41}, identity))
"""

import os
import pwd
import socket
import threading
from collections.abc import Collection, Iterable, Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from itertools import batched
from pathlib import Path
from types import TracebackType
from typing import Self

from bedplate.decide.chain import NOTED, Damage, Judged, Row, as_row, judge, judge_in_place, sound, unjudged
from bedplate.ledger import connection as connections
from bedplate.ledger.examination import Examination, examine
from bedplate.ledger.shelf import PAGE, Shelf
from bedplate.ledger.sqliteshelf import SqliteShelf
from bedplate.ledger.troubles import Damaged
from bedplate.ledger.uncollected import uncollected
from bedplate.model.event import GENESIS, Draft, Event, body_bytes, check_draft, seal, subjects_bytes
from bedplate.model.faults import BedplateError, Refused

SPAN = 20_000  # ids per read of events of some kinds
POSTGRESQL = ("postgresql:", "postgresql+psycopg:", "postgres:")


class Ledger:
    """Events in the order in which they were recorded; see the module for what holds. Safe across threads."""

    def __init__(self, shelf: Shelf, *, actor: str, writes: bool) -> None:
        """Wrap a shelf; callers use open, read or scratch."""
        self.shelf = shelf
        self.name = shelf.name
        self.actor = actor
        self._writes = writes
        self._pid = os.getpid()
        self._mutex = threading.RLock()
        self._own_head: tuple[int, str] | None = None  # of the last append here: needs no second look

    @classmethod
    def open(cls, url: str, *, actor: str | None = None) -> Self:
        """Open for appending; the file is made (mode 0600) when there is none, the table when there is none.

        Raises:
            BadInput: the address names no SQLite file and no database of PostgreSQL, or what is there is no ledger.
            Refused: its schema is newer than this bedplate.
            Damaged: one of its guards is missing or was changed.
            Busy: others hold it.
            BedplateError: it can be neither made nor written.
        """
        who = actor or default_actor()
        if url.startswith(POSTGRESQL):
            return cls(_postgresql(url, writes=True), actor=who, writes=True)
        path = connections.path_of(url)
        return cls(SqliteShelf(path, connections.writing(path, who=who), shared=True), actor=who, writes=True)

    @classmethod
    def read(cls, url: str) -> Self:
        """Open for reading only; where there is no file, there are no events.

        Raises:
            BadInput: as open.
            Refused: its schema is newer than this bedplate.
            BedplateError: it cannot be read.
        """
        if url.startswith(POSTGRESQL):
            return cls(_postgresql(url, writes=False), actor=default_actor(), writes=False)
        path = connections.path_of(url)
        return cls(SqliteShelf(path, connections.reading(path), shared=False), actor=default_actor(), writes=False)

    @classmethod
    def scratch(cls, url: str, *, actor: str | None = None) -> Self:
        """A copy in memory to append to, for dry runs: nothing of it reaches the file. Raises as open does."""
        who = actor or default_actor()
        if not url.startswith(POSTGRESQL):
            path = connections.path_of(url)
            return cls(SqliteShelf(path, connections.copy_in_memory(path), shared=False), actor=who, writes=True)
        with cls.read(url) as ledger:
            path = Path(ledger.name)
            copy = SqliteShelf(path, connections.in_memory(path), shared=False)
            with ledger.shelf.transaction(writes=False), copy.transaction(writes=True):
                copy.insert(
                    tuple(value.decode() if isinstance(value, bytes) else value for value in row)
                    for row in ledger.shelf.rows()
                    if isinstance(row, Row)
                )
                copy.commit()
        return cls(copy, actor=who, writes=True)

    @property
    def path(self) -> Path:
        """The file, where it is one; of PostgreSQL its address."""
        return Path(self.name)

    @property
    def cache(self) -> Path | None:
        """Where what the events say may be kept (projection.py); None for a copy in memory."""
        return self.shelf.cache

    @property
    def saved(self) -> Path | None:
        """Where that may have been kept already."""
        return self.shelf.saved

    @property
    def exists(self) -> bool:
        return self.shelf.exists

    def append(self, *drafts: Draft) -> list[Event]:
        """Record events behind the head, in one transaction: all of them or none.

        Raises:
            ValueError: a draft cannot be recorded; the message names the member.
            Busy: no turn to write within 30 s.
            Damaged: the head is not what was recorded, or the file refuses what follows it.
            BedplateError: the disk is full, read-only or failing; nothing was recorded.
        """
        self._refuse_child()
        if not self._writes:
            raise BedplateError(f"ledger {self.path}: was opened for reading only")
        for draft in drafts:
            check_draft(draft)
        bodies = [body_bytes(draft.body) for draft in drafts]  # before the turn: others wait for it
        if not drafts:
            return []
        with self._mutex, self._turn(), self._transaction("append", writes=True):
            last, previous = self._sound_head()
            recorded: list[Event] = []
            for draft, data in zip(drafts, bodies, strict=True):
                sealed = seal(draft, data, id=last + 1, at=_now(), actor=self.actor, previous=previous)
                recorded.append(sealed)
                last, previous = sealed.id, sealed.sha256
            self.shelf.insert(map(_values, recorded, bodies))
            self.shelf.commit()
            self._own_head = last, previous
        return recorded

    def claim(self, *, shared: bool = False) -> bool:
        """Whether no other controller rolls out by this ledger; then none can until this connection ends.

        shared: others may look at the same time; a rollout is not kept out for longer than the look.

        Raises:
            BedplateError: the server does not answer.
        """
        self._refuse_child()
        with self._mutex:
            try:
                return self.shelf.claim(shared=shared)
            except self.shelf.errors as fault:
                raise self.shelf.trouble(fault, "claim") from fault

    def adopt(self, rows: Iterable[Row]) -> int:
        """Take over the events of another ledger into this empty one, as they were recorded; returns how many.

        The caller has verified them; the database refuses what does not follow.

        Raises:
            Refused: this ledger has events.
            Busy, Damaged, BedplateError: as append; nothing was recorded.
        """
        if not self._writes:
            raise BedplateError(f"ledger {self.name}: was opened for reading only")
        count = 0
        with self._mutex, self._turn(), self._transaction("append", writes=True):
            if (head := self._head()[0]) != 0:
                raise Refused(f"ledger {self.name}: has {head} events; an import needs an empty ledger")
            for part in batched(rows, PAGE):
                self.shelf.insert(
                    tuple(value.decode() if isinstance(value, bytes) else value for value in row) for row in part
                )
                count += len(part)
            self.shelf.commit()
        return count

    def events(
        self, *, after: int = 0, until: int | None = None, kinds: Collection[str] | None = None,
        subject: str | None = None,
    ) -> Iterator[Event]:  # fmt: skip
        """Events behind id `after`, up to `until`, of these kinds, about this subject, by id.

        Those of the moment of the call.

        Raises:
            Damaged: an event is not what was recorded; or, where all of them are asked for, one is missing: what is
                folded of the others would be a state that nobody recorded.
        """
        head = self.head()[0]
        whole = kinds is None and subject is None
        where, parameters = _of_kinds(kinds)
        where, parameters = [*where, "id <= ?"], [*parameters, head if until is None else min(until, head)]
        if subject is not None:
            # Finds it as it is written in the stored array; the decoded subjects decide below.
            where, parameters = [*where, self.shelf.holds], [*parameters, subjects_bytes([subject])[1:-1].decode()]
        found = self._sound_events(where, parameters, after, subject)
        return self._linked(found, after) if whole else found

    def unjudged(self, *, kinds: Collection[str], until: int) -> Iterator[Event]:
        """Events of these kinds up to `until`, by id, as they stand there: for who has them judged meanwhile.

        Raises:
            ValueError: one of them says nothing.
        """
        where, parameters = _of_kinds(kinds)
        for first in range(0, until, SPAN):
            with self._mutex, self._transaction("read"):
                last = min(first + SPAN, until)
                found = self._select(["id > ?", "id <= ?", *where], [first, last, *parameters])
            yield from map(unjudged, found)

    def judged(self, *, after: int = 0, kinds: Collection[str] | None = None) -> Iterator[tuple[int, Judged]]:
        """Every event with what is wrong with it by itself: for showing a ledger, whatever its state."""
        for page in self._pages(*_of_kinds(kinds), after):
            yield from ((row.id, judge(row)) for row in page)

    def event(self, event_id: int) -> Judged | None:
        """One event with what is wrong with it, in its place too; None where the ledger has none of this id."""
        with self._mutex, self._transaction("read"):
            found = self._select(["id BETWEEN ? AND ?"], [event_id - 1, event_id + 1])
        rows = {row.id: row for row in found}
        if event_id not in rows:
            return None
        return judge_in_place(rows[event_id], rows.get(event_id - 1), rows.get(event_id + 1))

    def chosen(self, ids: Collection[int]) -> dict[int, Event]:
        """Events by their ids; those that the ledger lacks are left out.

        Raises:
            Damaged: one of them is not what was recorded.
        """
        found: dict[int, Event] = {}
        wanted = sorted(ids)
        for start in range(0, len(wanted), PAGE):
            part = wanted[start : start + PAGE]
            with self._mutex, self._transaction("read"):
                rows = self._select([f"id IN ({', '.join('?' * len(part))})"], part)
            found |= {row.id: self._sound_event(row) for row in rows}
        return found

    def head(self) -> tuple[int, str]:
        """Id and sha256 of the last event; (0, "sha256:000…") of an empty ledger."""
        with self._mutex, self._transaction("read"):
            return self._head()

    def sha256(self, event_id: int) -> str | None:
        """The recorded hash of an event, not recomputed; None where there is none, GENESIS of event 0."""
        if event_id == 0:
            return GENESIS
        with self._mutex, self._transaction("read"):
            found = self.shelf.query("SELECT sha256 FROM event WHERE id = ?", [event_id])
        return str(found[0][0]) if found else None

    def moments(self, first: int, last: int) -> list[tuple[int, str]]:
        """Id and time of the events first to last, not judged."""
        with self._mutex, self._transaction("read"):
            found = self.shelf.query("SELECT id, at FROM event WHERE id BETWEEN ? AND ? ORDER BY id", [first, last])
        return [(number, at) for number, at in found]

    def verify(self, *, expect_head: tuple[int, str] | None = None) -> list[Damage]:
        """Every damage, of the store and of each event; empty when the chain is intact."""
        return list(self.examine(expect_head=expect_head).damage)

    def examine(
        self, *, expect_head: tuple[int, str] | None = None, heads: Iterable[tuple[int, str, str]] = ()
    ) -> Examination:
        """Recompute the whole chain over the stored bytes, at one point in time, and check the store itself.

        An unkeyed chain alone cannot see that its tail was cut off: expect_head compares with a head that was
        noted elsewhere, as (id, sha256); heads with several, which have names.

        Raises:
            BedplateError: it cannot be read, for another reason than damage.
        """
        noted = [] if expect_head is None else [(*expect_head, NOTED)]
        with self._mutex, self._transaction("verify"), uncollected():
            return examine(self.shelf, heads=[*noted, *heads])

    def close(self) -> None:
        """Close; in a child of the process that opened it, nothing is touched."""
        if os.getpid() == self._pid:
            with self._mutex:
                self.shelf.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, fault: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def _refuse_child(self) -> None:
        if os.getpid() != self._pid:
            raise BedplateError(
                f"ledger {self.name}: opened by process {self._pid}, used by its child {os.getpid()} "
                "(use it in that process, or start the child as a program of its own)"
            )

    @contextmanager
    def _turn(self) -> Iterator[None]:
        with self.shelf.turn(self.actor):
            yield

    @contextmanager
    def _transaction(self, doing: str, *, writes: bool = False) -> Iterator[None]:
        """A transaction that ends undone unless it was committed; the database's errors become ours."""
        self._refuse_child()
        try:
            with self.shelf.transaction(writes=writes):
                yield
        except self.shelf.errors as fault:
            raise self.shelf.trouble(fault, doing) from fault

    def _head(self) -> tuple[int, str]:
        found = self.shelf.query("SELECT id, sha256 FROM event ORDER BY id DESC LIMIT 1")
        return (found[0][0], found[0][1]) if found else (0, GENESIS)

    def _sound_head(self) -> tuple[int, str]:
        """The head, recomputed where another process wrote it: nothing is built on a damaged one."""
        head = self._head()
        if head[0] and head != self._own_head:
            (row,) = self._select(["id = ?"], [head[0]])
            self._sound_event(row)
        return head

    def _select(self, where: list[str], parameters: Collection[object], *, limit: str = "") -> list[Row]:
        conditions = " AND ".join(where)
        statement = f"SELECT {self.shelf.stored} FROM event WHERE {conditions} ORDER BY id{limit}"  # noqa: S608
        return list(map(as_row, self.shelf.query(statement, list(parameters))))

    def _pages(self, where: list[str], parameters: list[object], after: int) -> Iterator[list[Row]]:
        """Rows by id, a page at a time; no read stays open between two of them."""
        while True:
            with self._mutex, self._transaction("read"):
                page = self._select(["id > ?", *where], [after, *parameters], limit=f" LIMIT {PAGE}")
            if page:
                yield page
            if len(page) < PAGE:
                return
            after = page[-1].id

    def _sound_events(
        self, where: list[str], parameters: list[object], after: int, subject: str | None
    ) -> Iterator[Event]:
        for page in self._pages(where, parameters, after):
            for row in page:
                event = self._sound_event(row)
                if subject is None or subject in event.subjects:
                    yield event

    def _linked(self, events: Iterator[Event], after: int) -> Iterator[Event]:
        """The same events, as long as each follows the one before it."""
        last, before = after, self.sha256(after)
        for event in events:
            if event.id != last + 1 or before is None:
                what = f"event {last if before is None else last + 1}: is missing"
            elif event.previous != before:
                what = f"event {event.id}: names another predecessor than event {last}"
            else:
                last, before = event.id, event.sha256
                yield event
                continue
            raise Damaged(f"ledger {self.name}: {what} (run: bedplate ledger verify)")

    def _sound_event(self, row: Row) -> Event:
        event = sound(row)
        if event is not None:
            return event
        judged = judge(row)
        if judged.event is None or judged.wrong:
            raise Damaged(f"ledger {self.name}: event {row.id}: {judged.wrong[0]} (run: bedplate ledger verify)")
        return judged.event


def default_actor() -> str:
    """Who records: the person behind sudo, else the user of this process, at this host."""
    user = os.environ.get("SUDO_USER")
    if not user:
        try:
            user = pwd.getpwuid(os.getuid()).pw_name
        except KeyError:
            user = f"uid-{os.getuid()}"
    return f"{user}@{socket.gethostname()}"


def _postgresql(url: str, *, writes: bool) -> Shelf:
    """The shelf of a database; its driver is loaded only where a site has one."""
    from bedplate.ledger.postgresqlshelf import connected  # noqa: PLC0415

    return connected(url, writes=writes)


def _of_kinds(kinds: Collection[str] | None) -> tuple[list[str], list[object]]:
    if kinds is None:
        return [], []
    return [f"kind IN ({', '.join('?' * len(kinds))})"], list(kinds)


def _now() -> str:
    return datetime.now(UTC).isoformat(timespec="microseconds").replace("+00:00", "Z")


def _values(sealed: Event, body: bytes) -> tuple[object, ...]:
    """A row, in the order of shelf.FIELDS."""
    return (
        sealed.id, sealed.at, sealed.actor, sealed.kind, subjects_bytes(sealed.subjects).decode(),
        sealed.environment, body.decode(), sealed.body_sha256, sealed.previous, sealed.sha256,
    )  # fmt: skip
