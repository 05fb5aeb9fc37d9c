"""A ledger in a SQLite file, or in memory."""

import sqlite3
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from bedplate.decide.chain import Damage, Row, Unreadable, as_row
from bedplate.ledger import connection as connections
from bedplate.ledger.schema import APPLICATION_ID, VERSION, schema_faults
from bedplate.ledger.shelf import FIELDS, PAGE
from bedplate.ledger.troubles import SQL_ERRORS, code_of, said, trouble
from bedplate.ledger.turn import turn
from bedplate.model.faults import BedplateError

READ = 4 * PAGE  # events per read of all of them
LINES = 20  # of SQLite's own check: enough to see where, not a flood
BEFORE_ALL = -(2**63)  # below every id, also one that was edited to less than 1
# What says that the file is wrong; busy, I/O and permission errors say that it could not be read.
FINDINGS = frozenset({sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_NOTADB, sqlite3.SQLITE_ERROR, sqlite3.SQLITE_MISMATCH})
INSERT = f"INSERT INTO event ({', '.join(FIELDS)}) VALUES ({', '.join('?' * len(FIELDS))})"  # noqa: S608  constants


class SqliteShelf:
    """See Shelf. shared: other processes may write to it, so turns are taken."""

    # Stored bytes, not text: what was hashed is judged, and a byte that is no UTF-8 is damage, not an exception.
    stored = ", ".join(("id", *(f"CAST({name} AS BLOB)" for name in FIELDS[1:])))
    holds = "instr(subjects, ?) > 0"
    errors: tuple[type[Exception], ...] = SQL_ERRORS

    def __init__(self, path: Path, raw: sqlite3.Connection, *, shared: bool) -> None:
        self.path = path
        self.name = str(path)
        self.raw = raw
        self._shared = shared
        self._inode = _inode(path) if shared else None
        self._holds = connections.is_file(raw)
        connections.hold(path, int(self._holds))
        self.saved: Path | None = path.with_name(path.name + "-folded")
        self.cache = self.saved if self._holds else None

    @property
    def exists(self) -> bool:
        return self.path.exists()

    def query(self, statement: str, parameters: Sequence[object] = ()) -> list[Any]:
        return self.raw.execute(statement, tuple(parameters)).fetchall()

    def insert(self, rows: Iterable[tuple[object, ...]]) -> None:
        self.raw.executemany(INSERT, rows)

    @contextmanager
    def transaction(self, *, writes: bool) -> Iterator[None]:
        self.raw.execute("BEGIN IMMEDIATE" if writes else "BEGIN")
        try:
            yield
        finally:
            if self.raw.in_transaction:
                self.raw.execute("ROLLBACK")

    def commit(self) -> None:
        self.raw.execute("COMMIT")

    @contextmanager
    def turn(self, who: str) -> Iterator[None]:
        if not self._shared:
            yield
            return
        lock = connections.lock_of(self.path)
        try:
            with turn(lock, ledger=self.path, who=who, timeout_s=connections.BUSY_TIMEOUT_S):
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

    def claim(self, *, shared: bool) -> bool:  # noqa: ARG002
        return True  # act/controllerlock.py: its file lies beside this one

    def trouble(self, fault: BaseException, doing: str) -> BedplateError:
        return trouble(fault, self.path, doing)

    def faults(self) -> Iterator[Damage]:
        for what in schema_faults(connections.objects_of(self.raw)):
            yield Damage(None, what)
        for name, wanted in (("user_version", VERSION), ("application_id", APPLICATION_ID)):
            ((number,),) = self.query(f"PRAGMA {name}")
            if number != wanted:
                yield Damage(None, f"PRAGMA {name} is {number}, bedplate wrote {wanted}")
        for (line,) in self.query(f"PRAGMA integrity_check({LINES})"):
            if line != "ok":
                yield Damage(None, f"SQLite finds: {' '.join(line.split())}")

    def finding(self, fault: BaseException) -> str | None:
        return f"SQLite cannot read on: {said(fault)}" if code_of(fault) in FINDINGS else None

    def rows(self) -> Iterator[Row | Unreadable]:
        after = BEFORE_ALL
        page = f"SELECT {self.stored} FROM event WHERE id > ? ORDER BY id LIMIT {READ}"  # noqa: S608  constants
        while True:
            try:
                found = self.query(page, [after])
            except SQL_ERRORS as fault:
                if code_of(fault) != sqlite3.SQLITE_CORRUPT:
                    raise
                first = max(after, 0) + 1
                last = int(self.query("SELECT max(id) FROM event")[0][0] or 0)
                one_by_one = list(self._singly(first, min(first + PAGE - 1, last)))
                if not any(isinstance(row, Row) for row in one_by_one):
                    yield Unreadable(first, max(first, last), said(fault))
                    return
                yield from one_by_one
                after = first + PAGE - 1
                if after >= last:
                    return
            else:
                yield from map(as_row, found)
                if len(found) < READ:
                    return
                after = found[-1][0]

    def close(self) -> None:
        self.raw.close()
        connections.hold(self.path, -int(self._holds))
        self._holds = False

    def _singly(self, first: int, last: int) -> Iterator[Row | Unreadable]:
        """Events first to last, one read each; neighbours that cannot be read as one."""
        lost: Unreadable | None = None
        for number in range(first, last + 1):
            try:
                found = self.query(f"SELECT {self.stored} FROM event WHERE id = ?", [number])  # noqa: S608
            except SQL_ERRORS as fault:
                lost = Unreadable(number if lost is None else lost.first, number, said(fault))
                continue
            if lost is not None:
                yield lost
                lost = None
            yield from map(as_row, found)
        if lost is not None:
            yield lost


def _inode(path: Path) -> tuple[int, int] | None:
    try:
        found = path.stat()
    except FileNotFoundError:
        return None
    return found.st_dev, found.st_ino
