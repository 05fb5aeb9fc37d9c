"""The ledger: append-only events in one SQLite file.

Invariants:
- An append is one transaction that reads the head inside it: all of its events are recorded, or none.
- Writers take turns (turn.py) and SQLite refuses what does not follow the head (schema.py): no fork.
- What was recorded survives a power loss: WAL with synchronous=FULL; one append costs one fsync, whatever
  the number of its events.
- An event is handed out only while its bytes hash to what was recorded; the whole chain is for `verify`.
- A connection is never used across a fork: SQLite's locks belong to the process that took them.

Example:
    with Ledger.open("sqlite:////srv/site/ledger.sqlite3") as ledger:
        ledger.append(Draft("node.done", ("node:n1", "rollout:7"), {"seconds": 41}, identity))
"""

import os
import pwd
import socket
import sqlite3
import threading
from collections.abc import Collection, Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from sqlalchemy import Connection, Select, create_engine, func, insert, select
from sqlalchemy.pool import StaticPool

from bedplate.decide.chain import Damage, Judged, Row, judge, judge_in_place
from bedplate.ledger import connection as connections
from bedplate.ledger.examination import PAGE, Examination, examine, row_of
from bedplate.ledger.schema import event, stored
from bedplate.ledger.troubles import SQL_ERRORS, Damaged, trouble
from bedplate.ledger.turn import turn
from bedplate.model.event import GENESIS, Draft, Event, body_bytes, check_draft, seal, subjects_bytes
from bedplate.model.faults import BedplateError


class Ledger:
    """Events in the order in which they were recorded; see the module for what holds. Safe across threads."""

    def __init__(self, path: Path, raw: sqlite3.Connection, *, actor: str, writes: bool, shared: bool) -> None:
        """Wrap a connection; callers use open, read or scratch.

        shared: other processes may write to it, so turns are taken.
        """
        self.path = path
        self.actor = actor
        self._raw = raw
        self._writes = writes
        self._shared = shared
        self._pid = os.getpid()
        self._mutex = threading.RLock()
        self._inode = _inode(path) if shared else None
        self._holds = connections.is_file(raw)
        connections.hold(path, int(self._holds))
        self._own_head: tuple[int, str] | None = None  # of the last append here: needs no second look
        self._engine = create_engine("sqlite+pysqlite://", creator=lambda: raw, poolclass=StaticPool)

    @classmethod
    def open(cls, url: str, *, actor: str | None = None) -> Self:
        """Open for appending; the file is made (mode 0600) when there is none.

        Raises:
            BadInput: the address names no SQLite file, or the file is no ledger.
            Refused: its schema is newer than this bedplate.
            Damaged: one of its guards is missing or was changed.
            Busy: others hold it.
            BedplateError: it can be neither made nor written.
        """
        path, who = connections.path_of(url), actor or default_actor()
        return cls(path, connections.writing(path, who=who), actor=who, writes=True, shared=True)

    @classmethod
    def read(cls, url: str) -> Self:
        """Open for reading only; where there is no file, there are no events.

        Raises:
            BadInput: the address names no SQLite file, or the file is no ledger.
            Refused: its schema is newer than this bedplate.
            BedplateError: it cannot be read.
        """
        path = connections.path_of(url)
        return cls(path, connections.reading(path), actor=default_actor(), writes=False, shared=False)

    @classmethod
    def scratch(cls, url: str, *, actor: str | None = None) -> Self:
        """A copy in memory to append to, for dry runs: nothing of it reaches the file. Raises as open does."""
        path, who = connections.path_of(url), actor or default_actor()
        return cls(path, connections.copy_in_memory(path), actor=who, writes=True, shared=False)

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
        with self._mutex, self._turn(), self._transaction("append", "BEGIN IMMEDIATE") as connection:
            last, previous = self._sound_head(connection)
            recorded: list[Event] = []
            for draft, data in zip(drafts, bodies, strict=True):
                sealed = seal(draft, data, id=last + 1, at=_now(), actor=self.actor, previous=previous)
                recorded.append(sealed)
                last, previous = sealed.id, sealed.sha256
            connection.execute(insert(event), list(map(_values, recorded, bodies)))
            connection.commit()
            self._own_head = last, previous
        return recorded

    def events(
        self, *, after: int = 0, kinds: Collection[str] | None = None, subject: str | None = None
    ) -> Iterator[Event]:
        """Events behind id `after`, of these kinds, about this subject, by id: those of the moment of the call.

        Raises:
            Damaged: an event is not what was recorded.
        """
        query = stored.where(event.c.id <= self.head()[0])
        if kinds is not None:
            query = query.where(event.c.kind.in_(kinds))
        if subject is not None:
            # Finds it as it is written in the stored array; the decoded subjects decide below.
            written = subjects_bytes([subject])[1:-1].decode()
            query = query.where(func.instr(event.c.subjects, written) > 0)
        return self._sound_events(query, after, subject)

    def judged(self, *, after: int = 0, kinds: Collection[str] | None = None) -> Iterator[tuple[int, Judged]]:
        """Every event with what is wrong with it by itself: for showing a ledger, whatever its state."""
        query = stored if kinds is None else stored.where(event.c.kind.in_(kinds))
        for page in self._pages(query, after):
            yield from ((row.id, judge(row)) for row in page)

    def event(self, event_id: int) -> Judged | None:
        """One event with what is wrong with it, in its place too; None where the ledger has none of this id."""
        near = stored.where(event.c.id.between(event_id - 1, event_id + 1))
        with self._mutex, self._transaction("read", "BEGIN") as connection:
            rows = {row.id: row for row in map(row_of, connection.execute(near))}
        if event_id not in rows:
            return None
        return judge_in_place(rows[event_id], rows.get(event_id - 1), rows.get(event_id + 1))

    def head(self) -> tuple[int, str]:
        """Id and sha256 of the last event; (0, "sha256:000…") of an empty ledger."""
        with self._mutex, self._transaction("read", "BEGIN") as connection:
            return _head(connection)

    def verify(self, *, expect_head: tuple[int, str] | None = None) -> list[Damage]:
        """Every damage, of the store and of each event; empty when the chain is intact."""
        return list(self.examine(expect_head=expect_head).damage)

    def examine(self, *, expect_head: tuple[int, str] | None = None) -> Examination:
        """Recompute the whole chain over the stored bytes, at one point in time, and check the store itself.

        An unkeyed chain alone cannot see that its tail was cut off: expect_head compares with a head that was
        noted elsewhere, as (id, sha256).

        Raises:
            BedplateError: SQLite cannot read, for another reason than damage.
        """
        with self._mutex, self._transaction("verify", "BEGIN") as connection:
            return examine(connection, expect_head=expect_head)

    def close(self) -> None:
        """Close; in a child of the process that opened it, nothing is touched."""
        if os.getpid() == self._pid:
            with self._mutex:
                self._engine.dispose()
                self._raw.close()
                connections.hold(self.path, -int(self._holds))
                self._holds = False

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, fault: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def _refuse_child(self) -> None:
        if os.getpid() != self._pid:
            raise BedplateError(
                f"ledger {self.path}: opened by process {self._pid}, used by its child {os.getpid()} "
                "(use it in that process, or start the child as a program of its own)"
            )

    @contextmanager
    def _turn(self) -> Iterator[None]:
        if not self._shared:
            yield
            return
        lock = connections.lock_of(self.path)
        try:
            with turn(lock, ledger=self.path, who=self.actor, timeout_s=connections.BUSY_TIMEOUT_S):
                if _inode(self.path) != self._inode:
                    raise BedplateError(
                        f"ledger {self.path}: the file was removed or replaced while it was open; nothing was "
                        "recorded (start again; bedplate ledger verify says what the new one holds)"
                    )
                yield
        except OSError as fault:
            raise BedplateError(
                f"ledger {self.path}: append: {fault.strerror}: {fault.filename}; nothing was recorded "
                f"(you must be able to write {self.path.parent})"
            ) from fault

    @contextmanager
    def _transaction(self, doing: str, begin: str) -> Iterator[Connection]:
        """A transaction that ends undone unless it was committed; SQLite's errors become ours."""
        self._refuse_child()
        try:
            # What was not committed is rolled back when the connection is handed back.
            with self._engine.connect() as connection:
                connection.exec_driver_sql(begin)
                yield connection
        except SQL_ERRORS as fault:
            raise trouble(fault, self.path, doing) from fault

    def _sound_head(self, connection: Connection) -> tuple[int, str]:
        """The head, recomputed where another process wrote it: nothing is built on a damaged one."""
        head = _head(connection)
        if head[0] and head != self._own_head:
            last = judge(row_of(connection.execute(stored.where(event.c.id == head[0])).one()))
            if last.wrong:
                raise self._damaged(head[0], last)
        return head

    def _pages(self, query: Select[Any], after: int) -> Iterator[list[Row]]:
        """Rows of a query by id, a page at a time; no read stays open between two of them."""
        while True:
            with self._mutex, self._transaction("read", "BEGIN") as connection:
                found = connection.execute(query.where(event.c.id > after).order_by(event.c.id).limit(PAGE)).all()
            page = list(map(row_of, found))
            if page:
                yield page
            if len(page) < PAGE:
                return
            after = page[-1].id

    def _sound_events(self, query: Select[Any], after: int, subject: str | None) -> Iterator[Event]:
        for page in self._pages(query, after):
            for row in page:
                judged = judge(row)
                if judged.event is None or judged.wrong:
                    raise self._damaged(row.id, judged)
                if subject is None or subject in judged.event.subjects:
                    yield judged.event

    def _damaged(self, event_id: int, judged: Judged) -> Damaged:
        return Damaged(f"ledger {self.path}: event {event_id}: {judged.wrong[0]} (run: bedplate ledger verify)")


def default_actor() -> str:
    """Who records: the person behind sudo, else the user of this process, at this host."""
    user = os.environ.get("SUDO_USER")
    if not user:
        try:
            user = pwd.getpwuid(os.getuid()).pw_name
        except KeyError:
            user = f"uid-{os.getuid()}"
    return f"{user}@{socket.gethostname()}"


def _inode(path: Path) -> tuple[int, int] | None:
    try:
        found = path.stat()
    except FileNotFoundError:
        return None
    return found.st_dev, found.st_ino


def _now() -> str:
    return datetime.now(UTC).isoformat(timespec="microseconds").replace("+00:00", "Z")


def _head(connection: Connection) -> tuple[int, str]:
    newest = select(event.c.id, event.c.sha256).order_by(event.c.id.desc()).limit(1)
    found = connection.execute(newest).one_or_none()
    return (0, GENESIS) if found is None else (found.id, found.sha256)


def _values(sealed: Event, body: bytes) -> dict[str, object]:
    return {
        "id": sealed.id, "at": sealed.at, "actor": sealed.actor, "kind": sealed.kind,
        "subjects": subjects_bytes(sealed.subjects).decode(), "environment": sealed.environment,
        "body": body.decode(), "body_sha256": sealed.body_sha256, "previous": sealed.previous,
        "sha256": sealed.sha256,
    }  # fmt: skip
