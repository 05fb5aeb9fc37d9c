"""A ledger in a database of PostgreSQL, where several controllers write one.

Invariants:
- A writer holds an advisory lock of the database from before it reads the head until its commit: no other role's
  rights are needed for it, and it goes with the connection, however that ends. Should a program write without it,
  primary key and trigger refuse one of the two.
- The role that appends needs INSERT and SELECT alone. Where another role owns the table, no controller can drop a
  guard: the owner's first `bedplate ledger` makes the table, and grants these two (docs/ledger.md).
- synchronous_commit is on whatever the server's default is; a server with fsync off is refused.
"""

import hashlib
import os
import re
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from bedplate.decide.chain import Damage, Row, Unreadable, as_row
from bedplate.ledger.connection import BUSY_TIMEOUT_S
from bedplate.ledger.shelf import FIELDS, PAGE
from bedplate.ledger.troubles import Damaged
from bedplate.model.event import GENESIS
from bedplate.model.faults import BadInput, BedplateError, Busy, Refused

try:
    import psycopg
    from psycopg import errors
except ImportError as fault:
    raise BedplateError(
        "ledger: an address of PostgreSQL needs its driver (install bedplate[postgresql], or psycopg[binary])"
    ) from fault

VERSION = 1
COMMENT = "bedplate ledger, schema "
LOCK = 0x42454450  # "BEDP": the advisory lock of its writers
ROLLOUTS = (LOCK, 1)  # that of the one controller that rolls out: it goes with the connection, however that ends
BEFORE_ALL = -(2**63)

TABLE = """CREATE TABLE event (
  id BIGINT PRIMARY KEY CHECK (id > 0),
  at TEXT NOT NULL CHECK (at ~ '^\\d{4}-\\d\\d-\\d\\dT\\d\\d:\\d\\d:\\d\\d\\.\\d{6}Z$'),
  actor TEXT NOT NULL CHECK (length(actor) > 0),
  kind TEXT NOT NULL CHECK (length(kind) > 0),
  subjects TEXT NOT NULL CHECK (json_typeof(subjects::json) = 'array'),
  environment TEXT CHECK (environment ~ '^sha256:[0-9a-f]{64}$'),
  body TEXT NOT NULL CHECK (json_typeof(body::json) = 'object'),
  body_sha256 TEXT NOT NULL CHECK (body_sha256 ~ '^sha256:[0-9a-f]{64}$'),
  previous TEXT NOT NULL CHECK (previous ~ '^sha256:[0-9a-f]{64}$'),
  sha256 TEXT NOT NULL CHECK (sha256 ~ '^sha256:[0-9a-f]{64}$')
)"""
# name of a function -> its body; the trigger of that name calls it
FUNCTIONS = {
    "event_no_change": " BEGIN RAISE 'the ledger is append-only: an event is never changed or deleted'; END ",
    "event_follows_head": f""" BEGIN
  IF NEW.id <> coalesce((SELECT max(id) FROM event), 0) + 1
  OR NEW.previous <> coalesce((SELECT sha256 FROM event ORDER BY id DESC LIMIT 1), '{GENESIS}')
  THEN RAISE 'the ledger is append-only: an event follows the head'; END IF; RETURN NEW; END """,  # noqa: S608  a constant
}
# name of a trigger -> when, for each what, which function
TRIGGERS = {
    "event_no_change": ("BEFORE UPDATE OR DELETE", "ROW", "event_no_change"),
    "event_no_truncate": ("BEFORE TRUNCATE", "STATEMENT", "event_no_change"),
    "event_follows_head": ("BEFORE INSERT", "ROW", "event_follows_head"),
}
# An insert that is refused says that head and rows disagree.
DAMAGE = (errors.DataCorrupted, errors.IndexCorrupted, errors.IntegrityError, errors.RaiseException)
ENABLED = "A"  # ENABLE ALWAYS: session_replication_role does not pass them
COLUMNS = "SELECT count(*) FROM information_schema.columns WHERE table_name = 'event' AND table_schema = current_schema"


class PostgresqlShelf:
    """See Shelf."""

    stored = ", ".join(("id", *(f"convert_to({name}, 'UTF8')" for name in FIELDS[1:])))
    holds = "strpos(subjects, ?) > 0"
    errors: tuple[type[Exception], ...] = (psycopg.Error,)

    def __init__(self, name: str, raw: psycopg.Connection[Any], *, exists: bool) -> None:
        self.name = name
        self.raw = raw
        self._exists = exists
        self._committing = False
        home = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "bedplate"
        self.saved: Path | None = home / f"ledger-{hashlib.sha256(name.encode()).hexdigest()[:16]}.sqlite3-folded"
        self.cache: Path | None = self.saved

    @property
    def exists(self) -> bool:
        return self._exists

    def query(self, statement: str, parameters: Sequence[object] = ()) -> list[Any]:
        if not self._exists:
            return []
        return self.raw.execute(statement.replace("?", "%s"), tuple(parameters)).fetchall()

    def insert(self, rows: Iterable[tuple[object, ...]]) -> None:
        statement = f"INSERT INTO event ({', '.join(FIELDS)}) VALUES ({', '.join(['%s'] * len(FIELDS))})"  # noqa: S608
        with self.raw.cursor() as cursor:
            cursor.executemany(statement, list(rows))

    @contextmanager
    def transaction(self, *, writes: bool) -> Iterator[None]:
        self._committing = False
        self.raw.execute("BEGIN" if writes else "BEGIN ISOLATION LEVEL REPEATABLE READ READ ONLY")
        try:
            if writes:
                self.raw.execute("SELECT pg_advisory_xact_lock(%s)", [LOCK])
            yield
        finally:
            # A connection that is gone has nothing left to undo.
            if not self.raw.closed and self.raw.info.transaction_status != psycopg.pq.TransactionStatus.IDLE:
                self.raw.execute("ROLLBACK")

    def commit(self) -> None:
        self._committing = True
        self.raw.execute("COMMIT")

    @contextmanager
    def turn(self, who: str) -> Iterator[None]:  # noqa: ARG002
        yield  # the transaction takes it

    def claim(self, *, shared: bool) -> bool:
        word = "_shared" if shared else ""
        found = self.raw.execute(f"SELECT pg_try_advisory_lock{word}(%s, %s)", ROLLOUTS).fetchone()
        return found is not None and bool(found[0])

    def trouble(self, fault: BaseException, doing: str) -> BedplateError:
        said = " ".join(str(fault).split())
        undone = "; nothing was recorded" if doing == "append" else ""
        if self._committing and (self.raw.closed or self.raw.broken):
            return BedplateError(
                f"ledger {self.name}: {doing}: {said}; the connection was lost while it was committed: whether it was "
                "recorded is not known (look: bedplate ledger log --last 5, then repeat the command)"
            )
        make: type[BedplateError] = BedplateError
        remedy = "look at the server's log; then: bedplate ledger verify"
        if isinstance(fault, errors.LockNotAvailable):
            make, remedy = Busy, f"no turn to write within {BUSY_TIMEOUT_S:g} s (see pg_locks); try again"
        elif isinstance(fault, errors.DiskFull):
            remedy = "free space on the server, then repeat the command"
        elif isinstance(fault, errors.InsufficientPrivilege):
            remedy = "the role needs SELECT, and INSERT to append, on the table event"
        elif isinstance(fault, DAMAGE):
            make, remedy = Damaged, "run: bedplate ledger verify"
        elif self.raw.closed or self.raw.broken:
            remedy = "see that the server runs and can be reached, then repeat the command"
        return make(f"ledger {self.name}: {doing}: {said}{undone} ({remedy})")

    def faults(self) -> Iterator[Damage]:
        if self._exists:
            yield from (Damage(None, what) for what in guard_faults(self.raw))
            counted = self.query("SELECT (SELECT count(*) FROM event), (SELECT count(DISTINCT id) FROM event)")
            for rows, ids in counted:
                if rows != ids:
                    yield Damage(None, f"{rows} rows have {ids} ids: the primary key is damaged")

    def finding(self, fault: BaseException) -> str | None:
        damage = (errors.DataCorrupted, errors.IndexCorrupted, errors.UndefinedTable, errors.UndefinedColumn)
        return f"PostgreSQL cannot read on: {' '.join(str(fault).split())}" if isinstance(fault, damage) else None

    def rows(self) -> Iterator[Row | Unreadable]:
        after = BEFORE_ALL
        while True:
            page = f"SELECT {self.stored} FROM event WHERE id > ? ORDER BY id LIMIT {PAGE}"  # noqa: S608  constants
            found = self.query(page, [after])
            yield from map(as_row, found)
            if len(found) < PAGE:
                return
            after = found[-1][0]

    def close(self) -> None:
        self.raw.close()


def connected(url: str, *, writes: bool) -> PostgresqlShelf:
    """A connection to the ledger of a database; the table is made where there is none, by who may write.

    Raises:
        BadInput: the address is malformed, or the table is no ledger's.
        Refused: its schema is newer, or the server does not sync what it is told to keep.
        Damaged: a guard is missing or was changed.
        BedplateError: the server cannot be reached.
    """
    address = "postgresql:" + url.partition(":")[2]
    name = shown(address)
    try:
        raw = psycopg.connect(address, autocommit=True, connect_timeout=30, application_name="bedplate")
    except psycopg.ProgrammingError as fault:
        raise BadInput(f"ledger: {name!r} is no address (write: postgresql://role@host/database): {fault}") from fault
    except psycopg.Error as fault:
        said = " ".join(str(fault).split())
        raise BedplateError(f"ledger {name}: cannot be opened: {said} (see that the server can be reached)") from fault
    shelf = PostgresqlShelf(name, raw, exists=True)
    try:
        _prepare(raw, name, writes=writes)
        shelf = PostgresqlShelf(name, raw, exists=_version(raw, name) is not None)
    except psycopg.Error as fault:
        trouble = shelf.trouble(fault, "open")
        raw.close()
        raise trouble from fault
    except BaseException:
        raw.close()
        raise
    return shelf


def shown(address: str) -> str:
    """An address without its password."""
    return re.sub(r"^([a-z]+://[^:/@]*):[^@/]*@", r"\1@", address)


def _prepare(raw: psycopg.Connection[Any], name: str, *, writes: bool) -> None:
    raw.execute("SET client_encoding = 'UTF8'")
    raw.execute("SET synchronous_commit = on")
    # Rows come by the primary key: a sort would write files where the disk may be full.
    raw.execute("SET enable_sort = off")
    raw.execute("SET enable_seqscan = off")
    raw.execute(f"SET lock_timeout = {int(BUSY_TIMEOUT_S * 1000)}")
    settings = dict(
        raw.execute("SELECT name, setting FROM pg_settings WHERE name IN ('fsync', 'server_encoding')").fetchall()
    )
    if settings.get("server_encoding") != "UTF8":
        raise BadInput(f"ledger {name}: the database has encoding {settings.get('server_encoding')} (make one in UTF8)")
    if not writes:
        return
    if settings.get("fsync") != "on":
        raise Refused(f"ledger {name}: the server runs with fsync off: a power loss would lose events (turn it on)")
    if _version(raw, name) is None:
        with raw.transaction():
            raw.execute("SELECT pg_advisory_xact_lock(%s)", [LOCK])
            if _version(raw, name) is None:
                _make(raw)
    if faults := list(guard_faults(raw)):
        raise Damaged(
            f"ledger {name}: {'; '.join(faults)}. Nothing is appended to it. Run: bedplate ledger verify; when that "
            "names nothing else, the owner of the table puts it back (docs/ledger.md)"
        )


def _version(raw: psycopg.Connection[Any], name: str) -> int | None:
    """The schema of the ledger there; None where there is no table."""
    # Not to_regclass: it remembers that there was none, also when another controller has made it meanwhile.
    found = raw.execute(
        "SELECT d.description FROM pg_class c LEFT JOIN pg_description d ON d.objoid = c.oid AND d.objsubid = 0"
        " WHERE c.relname = 'event' AND c.relnamespace = current_schema()::regnamespace"
    ).fetchone()
    if found is None:
        return None
    said = str(found[0] or "")
    if not said.startswith(COMMENT) or not said.removeprefix(COMMENT).isdecimal():
        raise BadInput(f"ledger {name}: has a table event, but no ledger of bedplate's (name another database)")
    version = int(said.removeprefix(COMMENT))
    if version > VERSION:
        raise Refused(f"ledger {name}: has schema {version}, this bedplate reads {VERSION} (install a newer one)")
    return version


def _make(raw: psycopg.Connection[Any]) -> None:
    raw.execute(TABLE)
    raw.execute("CREATE INDEX event_kind ON event (kind, id)")
    for name, body in FUNCTIONS.items():
        raw.execute(f"CREATE OR REPLACE FUNCTION {name}() RETURNS trigger LANGUAGE plpgsql AS $${body}$$")
    for name, (when, each, function) in TRIGGERS.items():
        raw.execute(f"CREATE TRIGGER {name} {when} ON event FOR EACH {each} EXECUTE FUNCTION {function}()")
        raw.execute(f"ALTER TABLE event ENABLE ALWAYS TRIGGER {name}")
    raw.execute(f"COMMENT ON TABLE event IS '{COMMENT}{VERSION}'")


def guard_faults(raw: psycopg.Connection[Any]) -> Iterator[str]:
    """What of the table's guards is missing, changed, or not ours."""
    found = raw.execute(
        "SELECT t.tgname, t.tgenabled, p.proname, p.prosrc, pg_get_triggerdef(t.oid) FROM pg_trigger t"
        " JOIN pg_proc p ON p.oid = t.tgfoid WHERE t.tgrelid = 'event'::regclass AND NOT t.tgisinternal"
    ).fetchall()
    there = {row[0]: row for row in found}
    for name, (when, each, function) in TRIGGERS.items():
        if name not in there:
            yield f"trigger {name} is missing"
            continue
        _, enabled, called, body, definition = there[name]
        words = set(when.split()) | {each, "WHEN"}
        same = set(definition.split()) & {*words, "AFTER", "INSTEAD"} == words - {"WHEN"}
        if enabled not in (ENABLED, ENABLED.encode()) or called != function or body != FUNCTIONS[function] or not same:
            yield f"trigger {name} is not the one that bedplate made, or is switched off"
    yield from (f"trigger {name} is not one of bedplate's" for name in there.keys() - TRIGGERS.keys())
    checks = raw.execute(
        "SELECT count(*) FILTER (WHERE contype = 'c' AND convalidated), count(*) FILTER (WHERE contype = 'p')"
        " FROM pg_constraint WHERE conrelid = 'event'::regclass"
    ).fetchone()
    wanted = (TABLE.count("CHECK"), 1)
    if checks != wanted:
        yield f"the table has {checks} checks and primary keys, bedplate made {wanted}"
    if raw.execute("SELECT to_regclass('event_kind')").fetchone() == (None,):
        yield "index event_kind is missing"
    columns = raw.execute(COLUMNS).fetchone()
    if columns != (len(FIELDS),):
        yield f"the table has {columns and columns[0]} columns, bedplate made {len(FIELDS)}"
