"""Connections to the file of a ledger: made safe to append on, or fit to read whatever state it is in."""

import os
import sqlite3
import time
from pathlib import Path
from urllib.parse import quote

from bedplate.ledger.schema import APPLICATION_ID, OBJECTS, VERSION, remedy, schema_faults
from bedplate.ledger.troubles import SQL_ERRORS, Damaged, code_of, is_damage, trouble
from bedplate.ledger.turn import turn
from bedplate.model.faults import BadInput, BedplateError, Refused

PREFIX = "sqlite:///"
PAGE_MIN = 512  # bytes: no SQLite database that holds anything is smaller
BUSY_TIMEOUT_S = 30.0  # an append takes milliseconds: who waits this long waits for something that hangs


def path_of(url: str) -> Path:
    """The file that a ledger's address names.

    Raises:
        BadInput: it is no address of a SQLite file.
        Damaged: the file was cut short.
    """
    database = url.removeprefix(PREFIX)
    if not url.startswith(PREFIX) or not database or "?" in url or database.startswith((":memory:", "file:")):
        raise BadInput(f"ledger: {url!r} names no SQLite file (write: sqlite:///ledger.sqlite3)")
    path = Path(database).resolve()  # as SQLite does: its -wal lies beside the file itself
    if path.is_dir():
        raise BadInput(f"ledger: {path} is a directory (name a file in it)")
    if path.exists() and 0 < (size := path.stat().st_size) < PAGE_MIN:
        # SQLite takes so short a file for an empty database, and would write over it.
        raise Damaged(f"ledger {path}: cut short, it has {size} bytes (restore a copy, or remove it)")
    return path


def is_file(connection: sqlite3.Connection) -> bool:
    """Whether a connection has a file open; one in memory has none."""
    return bool(connection.execute("PRAGMA database_list").fetchone()[2])


def hold(path: Path, change: int) -> None:
    """Note that this process opened a ledger (1), or closed it (-1)."""
    _held[path] = _held.get(path, 0) + change


def _note_fork() -> None:
    _inherited.update(path for path, count in _held.items() if count)


# SQLite keeps its locks of a file per process, and a child inherits the note of them without the locks: what
# the child opened would be unprotected, and the parent's close would remove the log under it.
# https://www.sqlite.org/howtocorrupt.html, 2.6
_held: dict[Path, int] = {}
_inherited: set[Path] = set()
os.register_at_fork(after_in_child=_note_fork)


def _refuse_inherited(path: Path) -> None:
    if path in _inherited:
        raise BedplateError(
            f"ledger {path}: the parent of process {os.getpid()} had it open when it forked "
            "(use it in the parent, or start the child as a program of its own)"
        )


def lock_of(path: Path) -> Path:
    return path.with_name(path.name + "-lock")


def writing(path: Path, *, who: str) -> sqlite3.Connection:
    """A connection to append on; the file is made, readable for its owner only, where there is none.

    Raises:
        BadInput, Refused, Damaged, Busy, BedplateError: see Ledger.open.
    """
    _refuse_inherited(path)
    if not path.parent.is_dir():
        raise BedplateError(f"ledger {path}: no directory {path.parent} (make it, or correct fleet.yml)")
    try:
        with turn(lock_of(path), ledger=path, who=who, timeout_s=BUSY_TIMEOUT_S):
            _make_file(path)
            connection = _connect(path, "mode=rw")
            try:
                _prepare(connection, path, wal=True)
            except BaseException:
                connection.close()
                raise
            return connection
    except OSError as fault:
        raise BedplateError(
            f"ledger {path}: cannot be opened for writing: {fault.strerror}: {fault.filename} "
            f"(you must be able to write the file and {path.parent})"
        ) from fault


def reading(path: Path) -> sqlite3.Connection:
    """A connection to read from, also of a damaged file: verify has to say what is wrong with it.

    Raises:
        BadInput, Refused, BedplateError: see Ledger.read.
    """
    if not path.exists():
        return in_memory(path)
    _refuse_inherited(path)
    connection = _connect_to_read(path)
    try:
        if kind_of(connection, path) == "ledger":
            return connection
    except SQL_ERRORS as fault:
        if is_damage(fault):
            return connection
        connection.close()
        raise trouble(fault, path, "read") from fault
    except BaseException:
        connection.close()
        raise
    connection.close()
    return in_memory(path)


def copy_in_memory(path: Path) -> sqlite3.Connection:
    """A connection to a copy that can be appended to and leaves no trace.

    Raises:
        BadInput, Refused, Damaged, BedplateError: see Ledger.scratch.
    """
    _refuse_inherited(path)
    memory = _memory()
    try:
        if path.exists():
            source = _connect_to_read(path)
            try:
                source.backup(memory)
            finally:
                source.close()
        _prepare(memory, path, wal=False)
    except SQL_ERRORS as fault:
        memory.close()
        raise trouble(fault, path, "copy to memory") from fault
    except BaseException:
        memory.close()
        raise
    return memory


def kind_of(connection: sqlite3.Connection, path: Path) -> str:
    """`empty` or `ledger`; everything else is refused.

    Raises:
        Refused: the schema is newer than this bedplate.
        BadInput: a SQLite database of something else.
        sqlite3.DatabaseError, UnicodeDecodeError: SQLite cannot read it.
    """
    version = connection.execute("PRAGMA user_version").fetchone()[0]
    application = connection.execute("PRAGMA application_id").fetchone()[0]
    objects = objects_of(connection)
    if application == APPLICATION_ID and version > VERSION:
        raise Refused(f"ledger {path}: has schema {version}, this bedplate reads {VERSION} (install a newer one)")
    # One number alone may have been damaged: that is for verify to say.
    if application == APPLICATION_ID or (version == VERSION and objects.keys() & OBJECTS.keys()):
        return "ledger"
    if not objects and not version and not application:
        return "empty"
    raise BadInput(f"ledger {path}: a SQLite database, but no ledger of bedplate (name another file in fleet.yml)")


def objects_of(connection: sqlite3.Connection) -> dict[tuple[str, str], str]:
    """What the file's schema holds: (type, name) -> statement."""
    found = connection.execute("SELECT type, name, sql FROM sqlite_schema WHERE sql IS NOT NULL").fetchall()
    return {(sort, name): sql for sort, name, sql in found}


def _connect(path: Path, mode: str) -> sqlite3.Connection:
    try:
        connection = sqlite3.connect(
            f"file:{quote(str(path))}?{mode}", uri=True, timeout=BUSY_TIMEOUT_S, isolation_level=None,
            check_same_thread=False,
        )  # fmt: skip
    except SQL_ERRORS as fault:
        raise trouble(fault, path, "open") from fault
    # Text that is no UTF-8 is damage to be named, not an exception of the driver.
    connection.text_factory = _lenient
    return connection


def _lenient(raw: bytes) -> str:
    return raw.decode(errors="replace")


def _connect_to_read(path: Path) -> sqlite3.Connection:
    """A read-only connection, also where nothing can be written beside the file."""
    connection = _connect(path, "mode=ro")
    try:
        connection.execute("SELECT 1 FROM sqlite_schema LIMIT 1").fetchall()
    except SQL_ERRORS as fault:
        if code_of(fault) not in {sqlite3.SQLITE_CANTOPEN, sqlite3.SQLITE_READONLY}:
            return connection
        connection.close()
        journal = path.with_name(path.name + "-wal")
        if journal.exists() and journal.stat().st_size:
            raise BedplateError(
                f"ledger {path}: {fault}: its newest events lie in {journal}, which SQLite reads only where "
                "it can write (copy both files to a directory of yours, and read them there)"
            ) from fault
        # No journal: the file is all there is, and nobody can be writing to it here.
        return _connect(path, "mode=ro&immutable=1")
    return connection


def _memory() -> sqlite3.Connection:
    return sqlite3.connect(":memory:", isolation_level=None, check_same_thread=False)


def in_memory(path: Path) -> sqlite3.Connection:
    """A connection to an empty ledger that lies in memory; path: what messages call it."""
    connection = _memory()
    _prepare(connection, path, wal=False)
    return connection


def _make_file(path: Path) -> None:
    """Make an empty file, and its name durable; a file that is there is left alone.

    It is never opened here when it exists: closing it would drop SQLite's locks of this process.
    """
    try:
        os.close(os.open(path, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600))
    except FileExistsError:
        return
    folder = os.open(path.parent, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(folder)
    finally:
        os.close(folder)


def _prepare(connection: sqlite3.Connection, path: Path, *, wal: bool) -> None:
    """Make a connection safe to append on, and the schema where the file is new.

    Raises:
        Damaged: a guard of the ledger is missing or was changed.
    """
    try:
        kind = kind_of(connection, path)
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
        found = objects_of(connection)
    except SQL_ERRORS as fault:
        raise trouble(fault, path, "open") from fault
    if faults := schema_faults(found):
        again = remedy(found)
        raise Damaged(
            f"ledger {path}: {'; '.join(faults)}. Nothing is appended to it. Run: bedplate ledger verify"
            + (f"; when that names nothing else, put back with sqlite3:\n{again}" if again else "")
        )


def _use_wal(connection: sqlite3.Connection, path: Path) -> None:
    """Switch to the write-ahead log; here SQLite does not wait for others by itself."""
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
                f"ledger {path}: its file system holds no write-ahead log, SQLite stays in mode {mode} "
                "(put it on a local disk)"
            )
        return
