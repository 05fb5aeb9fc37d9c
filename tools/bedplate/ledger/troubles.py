"""What SQLite's errors mean for the person who reads them."""

import sqlite3
from pathlib import Path

from sqlalchemy.exc import DBAPIError

from bedplate.model.faults import BedplateError, Busy, Refused

PRIMARY = 0xFF  # an extended result code holds the primary one in its low byte


class Damaged(Refused):
    """What lies in the ledger is not what was recorded: nothing is built on it."""


def code_of(fault: BaseException) -> int:
    """SQLite's primary result code; 1 (error) where there is none."""
    orig = fault.orig if isinstance(fault, DBAPIError) else fault
    return int(getattr(orig, "sqlite_errorcode", sqlite3.SQLITE_ERROR)) & PRIMARY


def said(fault: BaseException) -> str:
    return str(fault.orig if isinstance(fault, DBAPIError) else fault)


def damaged(fault: BaseException) -> bool:
    return code_of(fault) in {sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_NOTADB}


def trouble(fault: BaseException, path: Path, doing: str) -> BedplateError:
    """The error to raise for what SQLite said while doing something with a ledger."""
    start = f"ledger {path}: {doing}: {said(fault)}"
    match code_of(fault):
        case sqlite3.SQLITE_BUSY | sqlite3.SQLITE_LOCKED:
            return Busy(f"{start}; another process holds it (see: fuser {path}). Try again when it has ended")
        case sqlite3.SQLITE_FULL:
            return BedplateError(
                f"{start}; nothing was recorded. Free space there (df {path.parent}), then repeat"
            )
        case sqlite3.SQLITE_READONLY | sqlite3.SQLITE_CANTOPEN | sqlite3.SQLITE_PERM:
            return BedplateError(
                f"{start}; nothing was recorded. The file, its -wal and -shm, and the directory {path.parent} "
                "must be writable for you"
            )
        case sqlite3.SQLITE_IOERR:
            return BedplateError(
                f"{start}; nothing was recorded. Look at the disk of {path.parent} (dmesg, df), then run: "
                "bedplate ledger verify"
            )
        case sqlite3.SQLITE_CORRUPT | sqlite3.SQLITE_NOTADB:
            return Damaged(
                f"{start}; the file is damaged. Run: bedplate ledger verify; then restore a copy of it"
            )
        case sqlite3.SQLITE_CONSTRAINT:
            return Damaged(f"{start}; nothing was recorded. Run: bedplate ledger verify")
    return BedplateError(f"{start}; nothing was recorded. Run: bedplate ledger verify")
