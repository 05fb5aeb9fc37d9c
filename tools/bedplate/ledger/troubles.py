"""What SQLite's errors mean for the person who reads them."""

import sqlite3
from collections.abc import Callable
from pathlib import Path

from bedplate.model.faults import BedplateError, Busy, Refused

PRIMARY = 0xFF  # an extended result code holds the primary one in its low byte
# As the driver raises them, and as Python fails on a message of SQLite's that quotes a damaged schema in bytes that
# are no UTF-8.
SQL_ERRORS = (sqlite3.Error, UnicodeDecodeError)


class Damaged(Refused):
    """What lies in the ledger is not what was recorded: nothing is built on it."""


# primary result code -> class of error, what to do next; {path} and {folder} are filled in
REMEDIES: dict[int, tuple[Callable[[str], BedplateError], str]] = {
    sqlite3.SQLITE_BUSY: (Busy, "another process holds it (see: fuser {path}); try again when it has ended"),
    sqlite3.SQLITE_FULL: (BedplateError, "free space there (see: df {folder}), then repeat the command"),
    sqlite3.SQLITE_READONLY: (BedplateError, "you must be able to write the file, its -wal and -shm, and {folder}"),
    sqlite3.SQLITE_CANTOPEN: (BedplateError, "you must be able to read and write it, and {folder}"),
    sqlite3.SQLITE_IOERR: (BedplateError, "look at the disk of {folder} (dmesg, df); then: bedplate ledger verify"),
    sqlite3.SQLITE_CORRUPT: (Damaged, "the file is damaged: run bedplate ledger verify, and restore a copy of it"),
    sqlite3.SQLITE_NOTADB: (Damaged, "the file is no SQLite database: restore a copy of it, or correct fleet.yml"),
    sqlite3.SQLITE_CONSTRAINT: (Damaged, "run: bedplate ledger verify"),
}
REMEDIES[sqlite3.SQLITE_LOCKED] = REMEDIES[sqlite3.SQLITE_BUSY]
REMEDIES[sqlite3.SQLITE_PERM] = REMEDIES[sqlite3.SQLITE_CANTOPEN]


def code_of(fault: BaseException) -> int:
    """SQLite's primary result code; 1 (SQLITE_ERROR) where there is none."""
    if isinstance(fault, UnicodeDecodeError):
        return sqlite3.SQLITE_CORRUPT
    return int(getattr(fault, "sqlite_errorcode", sqlite3.SQLITE_ERROR)) & PRIMARY


def said(fault: BaseException) -> str:
    """What SQLite said."""
    if isinstance(fault, UnicodeDecodeError):
        return f"malformed: {fault.object.decode(errors='replace')}"
    return str(fault)


def is_damage(fault: BaseException) -> bool:
    return code_of(fault) in {sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_NOTADB}


def trouble(fault: BaseException, path: Path, doing: str) -> BedplateError:
    """The error to raise for what SQLite said while doing something with a ledger."""
    make, remedy = REMEDIES.get(code_of(fault), (BedplateError, "run: bedplate ledger verify"))
    undone = "; nothing was recorded" if doing == "append" else ""
    return make(f"ledger {path}: {doing}: {said(fault)}{undone} ({remedy.format(path=path, folder=path.parent)})")
