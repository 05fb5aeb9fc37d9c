"""Reads every stored byte of a ledger for judgement, through whatever SQLite can still read."""

import sqlite3
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import Any

from sqlalchemy import Connection, func, select
from sqlalchemy import Row as SqlRow

from bedplate.decide.chain import Damage, Row, Unreadable, check_chain
from bedplate.ledger.connection import objects_of
from bedplate.ledger.schema import APPLICATION_ID, VERSION, event, schema_faults, stored
from bedplate.ledger.troubles import SQL_ERRORS, code_of, said
from bedplate.model.event import GENESIS

PAGE = 500  # events per read: few round trips, little memory
LINES = 20  # of SQLite's own check: enough to see where, not a flood
BEFORE_ALL = -(2**63)  # below every id, also one that was edited to less than 1
# What says that the file is wrong; busy, I/O and permission errors say that it could not be read.
FINDINGS = frozenset({sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_NOTADB, sqlite3.SQLITE_ERROR, sqlite3.SQLITE_MISMATCH})


@dataclass(frozen=True)
class Examination:
    """What a verification found: how many events, the last one, and every damage."""

    events: int
    head: tuple[int, str]
    damage: tuple[Damage, ...]


def examine(connection: Connection, *, expect_head: tuple[int, str] | None) -> Examination:
    """Judge store and chain inside the caller's transaction: at one point in time.

    Raises:
        DBAPIError, sqlite3.Error: SQLite cannot read, for another reason than damage.
    """
    found: list[Damage] = []
    count, head = 0, (0, GENESIS)

    def counted() -> Iterator[Row | Unreadable]:
        nonlocal count, head
        for row in _every_row(connection):
            if isinstance(row, Row):
                count, head = count + 1, (row.id, (row.sha256 or b"").decode(errors="replace"))
            yield row

    parts: list[Callable[[], Iterable[Damage]]] = [
        lambda: _store_faults(connection),
        lambda: _integrity(connection),
        lambda: check_chain(counted(), expect_head=expect_head),
    ]
    for part in parts:
        try:
            found.extend(part())
        except SQL_ERRORS as fault:
            if code_of(fault) not in FINDINGS:
                raise
            found.append(Damage(None, f"SQLite cannot read on: {said(fault)}"))
    return Examination(count, head, tuple(dict.fromkeys(found)))


def row_of(found: SqlRow[Any]) -> Row:
    """A row of `schema.stored` for the judge."""
    return Row(**found._mapping)  # noqa: SLF001  SQLAlchemy's public name for it


def _store_faults(connection: Connection) -> Iterator[Damage]:
    raw = connection.connection.dbapi_connection
    assert isinstance(raw, sqlite3.Connection)  # noqa: S101  for the type checker
    for what in schema_faults(objects_of(raw)):
        yield Damage(None, what)
    for name, wanted in (("user_version", VERSION), ("application_id", APPLICATION_ID)):
        number = connection.exec_driver_sql(f"PRAGMA {name}").scalar_one()
        if number != wanted:
            yield Damage(None, f"PRAGMA {name} is {number}, bedplate wrote {wanted}")


def _integrity(connection: Connection) -> Iterator[Damage]:
    for (line,) in connection.exec_driver_sql(f"PRAGMA integrity_check({LINES})").all():
        if line != "ok":
            yield Damage(None, f"SQLite finds: {' '.join(line.split())}")


def _every_row(connection: Connection) -> Iterator[Row | Unreadable]:
    """Every event by id; those that SQLite cannot hand out, as such."""
    after = BEFORE_ALL
    while True:
        try:
            found = connection.execute(stored.where(event.c.id > after).order_by(event.c.id).limit(PAGE)).all()
        except SQL_ERRORS as fault:
            if code_of(fault) != sqlite3.SQLITE_CORRUPT:
                raise
            first = max(after, 0) + 1
            last = int(connection.execute(select(func.max(event.c.id))).scalar_one() or 0)
            one_by_one = list(_singly(connection, first, min(first + PAGE - 1, last)))
            if not any(isinstance(row, Row) for row in one_by_one):
                yield Unreadable(first, max(first, last), said(fault))
                return
            yield from one_by_one
            after = first + PAGE - 1
            if after >= last:
                return
        else:
            yield from map(row_of, found)
            if len(found) < PAGE:
                return
            after = found[-1].id


def _singly(connection: Connection, first: int, last: int) -> Iterator[Row | Unreadable]:
    """Events first to last, one read each; neighbours that cannot be read as one."""
    lost: Unreadable | None = None
    for number in range(first, last + 1):
        try:
            found = connection.execute(stored.where(event.c.id == number)).one_or_none()
        except SQL_ERRORS as fault:
            lost = Unreadable(number if lost is None else lost.first, number, said(fault))
            continue
        if lost is not None:
            yield lost
            lost = None
        if found is not None:
            yield row_of(found)
    if lost is not None:
        yield lost
