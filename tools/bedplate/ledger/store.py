"""The ledger: append-only events in one SQLite file.

Invariants:
- An append is one transaction that reads the head inside it: all of its events are recorded, or none.
- Writers take turns (turn.py) and SQLite refuses what does not follow the head (schema.py): no fork.
- What was committed survives a power loss: WAL with synchronous=FULL, one fsync per append, however many events.
- An event is handed out only if its bytes still hash to what was recorded; the whole chain is `verify`'s.
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
import time
from collections.abc import Collection, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from types import TracebackType
from typing import Any, Self
from urllib.parse import quote

from sqlalchemy import Connection, Engine, Select, create_engine, func, insert, select
from sqlalchemy import Row as SqlRow
from sqlalchemy.engine import make_url
from sqlalchemy.exc import ArgumentError, DBAPIError
from sqlalchemy.pool import StaticPool

from bedplate.decide.chain import Damage, Row, Unreadable, check_chain, decode
from bedplate.ledger.schema import APPLICATION_ID, OBJECTS, VERSION, event, remedy, schema_faults, stored
from bedplate.ledger.troubles import Damaged, code_of, damaged, said, trouble
from bedplate.ledger.turn import turn
from bedplate.model.event import GENESIS, Draft, Event, body_bytes, check_draft, seal, subjects_bytes
from bedplate.model.faults import BadInput, BedplateError, Refused

BUSY_TIMEOUT_S = 30.0  # an append takes milliseconds; who waits this long waits for something that hangs
FAULTS_SHOWN = 20  # lines of SQLite's own check: enough to see where, not a flood
PAGE = 500  # events per read: few round trips, and no read stays open between two of them


@dataclass(frozen=True)
class Examination:
    """What a verification found: how many events, the last one, and every damage."""

    events: int
    head: tuple[int, str]
    damage: tuple[Damage, ...]


class Ledger:
    """Events in the order in which they were recorded; see the module for what holds."""

    def __init__(
        self, path: Path, connection: sqlite3.Connection, *, actor: str, writes: bool, shared: bool
    ) -> None:
        """Wrap an open connection; callers use open, read or scratch."""
        self.path = path
        self.actor = actor
        self._raw = connection
        self._writes = writes
        self._shared = shared  # other processes may write to it: turns are taken
        self._pid = os.getpid()
        self._mutex = threading.RLock()
        self._checked_head: tuple[int, str] | None = None
        self._engine: Engine = create_engine(
            "sqlite+pysqlite://", creator=lambda: connection, poolclass=StaticPool
        )

    @classmethod
    def open(cls, url: str, *, actor: str | None = None) -> Self:
        """Open for appending; the file is made (mode 0600) when there is none.

        Raises:
            BadInput: the url names no SQLite file, or the file is no ledger.
            Refused: its schema is newer than this bedplate, or its guards were tampered with.
            Busy: others hold it.
            BedplateError: it cannot be made or written.
        """
        path = _path_of(url)
        if not path.parent.is_dir():
            raise BedplateError(
                f"ledger {path}: the directory {path.parent} is missing: make it, or correct fleet.yml"
            )
        who = actor or default_actor()
        try:
            with turn(_lock_of(path), ledger=path, who=who, timeout_s=BUSY_TIMEOUT_S):
                _make_file(path)
                connection = _connect(path, "rw")
                try:
                    _prepare(connection, path)
                except BaseException:
                    connection.close()
                    raise
        except OSError as fault:
            raise BedplateError(
                f"ledger {path}: cannot be opened for writing: {fault.strerror} ({fault.filename}). "
                f"The directory {path.parent} must be writable for you"
            ) from fault
        return cls(path, connection, actor=who, writes=True, shared=True)

    @classmethod
    def read(cls, url: str) -> Self:
        """Open for reading only; where there is no file, there are no events.

        Raises:
            BadInput: the url names no SQLite file, or the file is no ledger.
            Refused: its schema is newer than this bedplate.
            BedplateError: it cannot be read.
        """
        path = _path_of(url)
        if not path.exists():
            return cls(path, _in_memory(path), actor=default_actor(), writes=False, shared=False)
        connection = _connect_to_read(path)
        try:
            if _kind_of(connection, path) == "empty":
                connection.close()
                connection = _in_memory(path)
        except sqlite3.DatabaseError as fault:
            if not damaged(fault):
                connection.close()
                raise trouble(fault, path, "read") from fault
            # A damaged file is opened all the same: verify has to say what is wrong with it.
        except BaseException:
            connection.close()
            raise
        return cls(path, connection, actor=default_actor(), writes=False, shared=False)

    @classmethod
    def scratch(cls, url: str, *, actor: str | None = None) -> Self:
        """A copy in memory to append to: for dry runs; nothing of it reaches the file."""
        path = _path_of(url)
        memory = _blank()
        try:
            if path.exists():
                source = _connect_to_read(path)
                try:
                    source.backup(memory)
                finally:
                    source.close()
            _prepare(memory, path, wal=False)
        except sqlite3.DatabaseError as fault:
            memory.close()
            raise trouble(fault, path, "copy to memory") from fault
        except BaseException:
            memory.close()
            raise
        return cls(path, memory, actor=actor or default_actor(), writes=True, shared=False)

    def append(self, *drafts: Draft) -> list[Event]:
        """Record events behind the head, in one transaction: all of them or none.

        Raises:
            ValueError: a draft cannot be recorded; the message names the member.
            Busy: no turn to write within 30 s.
            Damaged: the head is not what was recorded, or the file refuses what follows it.
            BedplateError: the disk is full, read-only or failing; nothing was recorded.
        """
        self._usable()
        if not self._writes:
            raise BedplateError(f"ledger {self.path}: opened for reading only")
        for draft in drafts:
            check_draft(draft)
        bodies = [body_bytes(draft.body) for draft in drafts]  # before the turn: others wait for it
        if not drafts:
            return []
        with self._mutex, self._turn(), self._transaction("append", "BEGIN IMMEDIATE") as connection:
            last, previous = self._sound_head(connection)
            recorded: list[Event] = []
            for draft, data in zip(drafts, bodies, strict=True):
                at = datetime.now(UTC).isoformat(timespec="microseconds").replace("+00:00", "Z")
                sealed = seal(draft, data, id=last + 1, at=at, actor=self.actor, previous=previous)
                recorded.append(sealed)
                last, previous = sealed.id, sealed.sha256
            connection.execute(insert(event), [_values(e, d) for e, d in zip(recorded, bodies, strict=True)])
            connection.commit()
            self._checked_head = last, previous
        return recorded

    def events(
        self, *, after: int = 0, kinds: Collection[str] | None = None, subject: str | None = None
    ) -> Iterator[Event]:
        """Events behind id `after`, by id; of these kinds; about this subject. Those of the moment of the call.

        Raises:
            Damaged: an event is not what was recorded.
        """
        query = stored
        if kinds is not None:
            query = query.where(event.c.kind.in_(kinds))
        if subject is not None:
            # As written in the stored array; decoded subjects decide below.
            written = subjects_bytes([subject])[1:-1].decode()
            query = query.where(func.instr(event.c.subjects, written) > 0)
        last = self.head()[0]
        return self._decoded(query.where(event.c.id <= last), after, subject)

    def event(self, event_id: int) -> tuple[Event | None, list[str]] | None:
        """One event and what is wrong with it by itself; None where the ledger has none of this id."""
        with self._mutex, self._transaction("read", "BEGIN") as connection:
            found = connection.execute(stored.where(event.c.id == event_id)).one_or_none()
        return None if found is None else decode(_row(found))

    def rows(self, *, after: int = 0) -> Iterator[Row]:
        """Events as they are stored, nothing decoded or judged."""
        for page in self._pages(stored, after):
            yield from page

    def head(self) -> tuple[int, str]:
        """Id and sha256 of the last event; (0, "sha256:000…") of an empty ledger."""
        with self._mutex, self._transaction("read", "BEGIN") as connection:
            return _head(connection)

    def verify(self, *, expect_head: tuple[int, str] | None = None) -> list[Damage]:
        """Every damage; empty when the chain is intact."""
        return list(self.examine(expect_head=expect_head).damage)

    def examine(self, *, expect_head: tuple[int, str] | None = None) -> Examination:
        """Recompute the whole chain over the stored bytes, at one point in time, and check the store itself.

        An unkeyed chain alone cannot see that its tail was cut off: expect_head compares with a head noted
        elsewhere, as (id, sha256).
        """
        self._usable()
        with self._mutex, self._engine.connect() as connection:
            found: list[Damage] = []
            count = 0
            head = (0, GENESIS)

            def counted() -> Iterator[Row | Unreadable]:
                nonlocal count, head
                for row in _every_row(connection):
                    if isinstance(row, Row):
                        count += 1
                        head = row.id, (row.sha256 or b"").decode(errors="replace")
                    yield row

            try:
                connection.exec_driver_sql("BEGIN")
                found += [Damage(None, what) for what in _store_faults(connection)]
                found += check_chain(counted(), expect_head=expect_head)
            except DBAPIError as fault:
                if code_of(fault) in {sqlite3.SQLITE_BUSY, sqlite3.SQLITE_IOERR, sqlite3.SQLITE_CANTOPEN}:
                    raise trouble(fault, self.path, "verify") from fault
                found.append(Damage(None, f"SQLite cannot read on: {said(fault)}"))
            finally:
                connection.rollback()
        return Examination(count, head, tuple(dict.fromkeys(found)))

    def close(self) -> None:
        """Close; in a child of the process that opened it, nothing is touched."""
        if os.getpid() == self._pid:
            with self._mutex:
                self._engine.dispose()
                self._raw.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, fault: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def _usable(self) -> None:
        if os.getpid() != self._pid:
            raise BedplateError(
                f"ledger {self.path}: opened by process {self._pid}, used by its child {os.getpid()}: "
                "open it again after a fork"
            )

    @contextmanager
    def _turn(self) -> Iterator[None]:
        if not self._shared:
            yield
            return
        try:
            with turn(_lock_of(self.path), ledger=self.path, who=self.actor, timeout_s=BUSY_TIMEOUT_S):
                yield
        except OSError as fault:
            raise BedplateError(
                f"ledger {self.path}: no turn to write: {fault.strerror} ({fault.filename}); nothing was recorded"
            ) from fault

    @contextmanager
    def _transaction(self, doing: str, begin: str) -> Iterator[Connection]:
        """A transaction that ends undone unless it was committed; SQLite's errors as ours."""
        self._usable()
        try:
            with self._engine.connect() as connection:
                connection.exec_driver_sql(begin)
                yield connection  # what was not committed is rolled back when the connection is handed back
        except DBAPIError as fault:
            raise trouble(fault, self.path, doing) from fault

    def _sound_head(self, connection: Connection) -> tuple[int, str]:
        """The head, recomputed where another process wrote it: nothing is built on a damaged one."""
        head = _head(connection)
        if head[0] and head != self._checked_head:
            row = connection.execute(stored.where(event.c.id == head[0])).one()
            _, wrong = decode(_row(row))
            if wrong:
                raise Damaged(
                    f"ledger {self.path}: event {head[0]}, the last one: {wrong[0]}. Run: bedplate ledger verify"
                )
        return head

    def _pages(self, query: Select[tuple[int, *tuple[bytes, ...]]], after: int) -> Iterator[list[Row]]:
        while True:
            with self._mutex, self._transaction("read", "BEGIN") as connection:
                found = connection.execute(
                    query.where(event.c.id > after).order_by(event.c.id).limit(PAGE)
                ).all()
            page = [_row(item) for item in found]
            if page:
                yield page
            if len(page) < PAGE:
                return
            after = page[-1].id

    def _decoded(
        self, query: Select[tuple[int, *tuple[bytes, ...]]], after: int, subject: str | None
    ) -> Iterator[Event]:
        for page in self._pages(query, after):
            for row in page:
                found, wrong = decode(row)
                if found is None or wrong:
                    raise Damaged(
                        f"ledger {self.path}: event {row.id}: {wrong[0]}. Run: bedplate ledger verify"
                    )
                if subject is None or subject in found.subjects:
                    yield found


def default_actor() -> str:
    """Who records: the person behind sudo, else the login user, at this host."""
    user = os.environ.get("SUDO_USER")
    if not user:
        try:
            user = pwd.getpwuid(os.getuid()).pw_name
        except KeyError:
            user = f"uid-{os.getuid()}"
    return f"{user}@{socket.gethostname()}"


def _path_of(url: str) -> Path:
    try:
        parsed = make_url(url)
    except ArgumentError as fault:
        raise BadInput(f"ledger: {url!r} is no address (write: sqlite:///ledger.sqlite3)") from fault
    if (
        parsed.get_backend_name() != "sqlite"
        or not parsed.database
        or parsed.database == ":memory:"
        or parsed.query
    ):
        raise BadInput(f"ledger: {url!r} names no SQLite file (write: sqlite:///ledger.sqlite3)")
    path = Path(parsed.database).absolute()
    if path.is_dir():
        raise BadInput(f"ledger: {path} is a directory (name a file in it)")
    return path


def _lock_of(path: Path) -> Path:
    return path.with_name(path.name + "-lock")


def _make_file(path: Path) -> None:
    """Make an empty file that only its owner reads, and its name durable."""
    try:
        os.close(os.open(path, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600))
    except FileExistsError:
        return
    folder = os.open(path.parent, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(folder)
    finally:
        os.close(folder)


def _connect(path: Path, mode: str) -> sqlite3.Connection:
    try:
        connection = sqlite3.connect(
            f"file:{quote(str(path))}?{mode if '=' in mode else 'mode=' + mode}", uri=True, timeout=BUSY_TIMEOUT_S,
            isolation_level=None, check_same_thread=False,
        )  # fmt: skip
    except sqlite3.Error as fault:
        raise trouble(fault, path, "open") from fault
    return connection


def _connect_to_read(path: Path) -> sqlite3.Connection:
    """A read-only connection, also where nothing can be written beside the file."""
    connection = _connect(path, "ro")
    try:
        connection.execute("SELECT 1 FROM sqlite_schema LIMIT 1").fetchall()
    except sqlite3.DatabaseError as fault:
        if code_of(fault) not in {sqlite3.SQLITE_CANTOPEN, sqlite3.SQLITE_READONLY}:
            return connection
        connection.close()
        journal = path.with_name(path.name + "-wal")
        if journal.exists() and journal.stat().st_size:
            raise BedplateError(
                f"ledger {path}: {fault}: its newest events lie in {journal}, which SQLite can read only where it can "
                "write; copy the ledger with its -wal to a directory of yours and read it there"
            ) from fault
        # No journal: the file is all there is, and nobody can be writing to it here.
        return _connect(path, "mode=ro&immutable=1")
    return connection


def _blank() -> sqlite3.Connection:
    return sqlite3.connect(":memory:", isolation_level=None, check_same_thread=False)


def _in_memory(path: Path) -> sqlite3.Connection:
    connection = _blank()
    _prepare(connection, path, wal=False)
    return connection


def _kind_of(connection: sqlite3.Connection, path: Path) -> str:
    """`empty` or `ledger`; everything else is refused."""
    version = connection.execute("PRAGMA user_version").fetchone()[0]
    application = connection.execute("PRAGMA application_id").fetchone()[0]
    objects = connection.execute("SELECT count(*) FROM sqlite_schema").fetchone()[0]
    if application == APPLICATION_ID and version > VERSION:
        raise Refused(
            f"ledger {path}: has schema {version}, this bedplate reads {VERSION}: install a newer bedplate"
        )
    if application == APPLICATION_ID or (version == VERSION and _objects(connection).keys() & OBJECTS.keys()):
        return "ledger"
    if not objects and not version and not application:
        return "empty"
    raise BadInput(
        f"ledger {path}: is a SQLite database, but no ledger of bedplate (name another file in fleet.yml)"
    )


def _prepare(connection: sqlite3.Connection, path: Path, *, wal: bool = True) -> None:
    """Make a connection safe to append on, and the schema where the file is new."""
    try:
        kind = _kind_of(connection, path)
        if wal:
            _use_wal(connection, path)
        connection.execute("PRAGMA synchronous = FULL")
        connection.execute("PRAGMA foreign_keys = ON")
        if kind == "empty":
            connection.execute("BEGIN IMMEDIATE")
            for sql in OBJECTS.values():
                connection.execute(sql)
            connection.execute(f"PRAGMA application_id = {APPLICATION_ID}")
            connection.execute(f"PRAGMA user_version = {VERSION}")
            connection.execute("COMMIT")
        found = _objects(connection)
    except sqlite3.DatabaseError as fault:
        raise trouble(fault, path, "open") from fault
    faults = schema_faults(found)
    if faults:
        again = remedy(found)
        raise Damaged(
            f"ledger {path}: {'; '.join(faults)}. Nothing is appended to it. Run: bedplate ledger verify"
            + (f"; where that names nothing else, put back with sqlite3:\n{again}" if again else "")
        )


def _use_wal(connection: sqlite3.Connection, path: Path) -> None:
    """Switch to the write-ahead log; SQLite does not wait for others here by itself."""
    deadline = time.monotonic() + BUSY_TIMEOUT_S
    while True:
        try:
            mode = connection.execute("PRAGMA journal_mode = WAL").fetchone()[0]
        except sqlite3.OperationalError as fault:
            if code_of(fault) != sqlite3.SQLITE_BUSY or time.monotonic() >= deadline:
                raise
            time.sleep(0.02)
            continue
        if mode != "wal":
            raise BedplateError(
                f"ledger {path}: its file system cannot hold a write-ahead log (SQLite stays in mode {mode}): "
                "put it on a local disk"
            )
        return


def _objects(connection: sqlite3.Connection) -> dict[tuple[str, str], str]:
    found = connection.execute("SELECT type, name, sql FROM sqlite_schema WHERE sql IS NOT NULL").fetchall()
    return {(sort, name): sql for sort, name, sql in found}


def _head(connection: Connection) -> tuple[int, str]:
    found = connection.execute(
        select(event.c.id, event.c.sha256).order_by(event.c.id.desc()).limit(1)
    ).one_or_none()
    return (0, GENESIS) if found is None else (found.id, found.sha256)


def _row(found: SqlRow[tuple[Any, ...]]) -> Row:
    return Row(*found)


def _values(sealed: Event, body: bytes) -> dict[str, object]:
    return {
        "id": sealed.id, "at": sealed.at, "actor": sealed.actor, "kind": sealed.kind,
        "subjects": subjects_bytes(sealed.subjects).decode(), "environment": sealed.environment,
        "body": body.decode(), "body_sha256": sealed.body_sha256, "previous": sealed.previous,
        "sha256": sealed.sha256,
    }  # fmt: skip


def _store_faults(connection: Connection) -> list[str]:
    """What is wrong with the store apart from its events."""
    raw = connection.connection.dbapi_connection
    assert isinstance(raw, sqlite3.Connection)  # noqa: S101
    faults = schema_faults(_objects(raw))
    for name, wanted in (("user_version", VERSION), ("application_id", APPLICATION_ID)):
        found = connection.exec_driver_sql(f"PRAGMA {name}").scalar_one()
        if found != wanted:
            faults.append(f"PRAGMA {name} is {found}, bedplate wrote {wanted}")
    said_by_sqlite = [
        line for (line,) in connection.exec_driver_sql(f"PRAGMA integrity_check({FAULTS_SHOWN})")
    ]
    return faults + [f"SQLite finds: {line}" for line in said_by_sqlite if line != "ok"]


def _every_row(connection: Connection) -> Iterator[Row | Unreadable]:
    """Every event by id, inside the caller's transaction; what SQLite cannot read one by one, by name."""
    after = 0
    while True:
        query = stored.where(event.c.id > after).order_by(event.c.id).limit(PAGE)
        try:
            found = connection.execute(query).all()
        except DBAPIError as fault:
            if not damaged(fault):
                raise
            yield from (
                one for number in range(after + 1, after + PAGE + 1) if (one := _one(connection, number))
            )
            after += PAGE
            if after >= _highest(connection):
                return
            continue
        for item in found:
            yield _row(item)
        if len(found) < PAGE:
            return
        after = found[-1].id


def _one(connection: Connection, number: int) -> Row | Unreadable | None:
    try:
        found = connection.execute(stored.where(event.c.id == number)).one_or_none()
    except DBAPIError as fault:
        return Unreadable(number, said(fault))
    return None if found is None else _row(found)


def _highest(connection: Connection) -> int:
    return int(connection.execute(select(func.max(event.c.id))).scalar_one() or 0)
