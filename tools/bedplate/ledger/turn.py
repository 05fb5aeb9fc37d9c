"""One writer at a time: a lock file beside the ledger, held while an append runs.

SQLite keeps writers apart by itself, but up to 3.51.2 (Debian 12 and 13, Ubuntu 24.04) a checkpoint that runs
beside another connection's commit can lose it: https://www.sqlite.org/wal.html#walresetbug. A checkpoint runs
at the end of an append, so whoever holds this lock commits and checkpoints alone. The lock goes with its
process, however that ends.
"""

import fcntl
import os
import time
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path

from bedplate.model.faults import Busy

POLL_S = 0.005


@contextmanager
def turn(lock: Path, *, ledger: Path, who: str, timeout_s: float) -> Iterator[None]:
    """Wait for the turn to write, and hold it.

    Raises:
        Busy: another process held it for timeout_s; says which.
        OSError: the lock file can be neither opened nor made.
    """
    handle = os.open(lock, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        deadline = time.monotonic() + timeout_s
        while True:
            try:
                fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
                break
            except BlockingIOError:
                if time.monotonic() >= deadline:
                    holder = os.pread(handle, 500, 0).decode(errors="replace").strip() or "another process"
                    raise Busy(
                        f"ledger {ledger}: no turn to write within {timeout_s:g} s; held by {holder}. "
                        "Try again when it has ended"
                    ) from None
                time.sleep(POLL_S)
        try:
            note = f"process {os.getpid()} ({who}) since {datetime.now(UTC):%Y-%m-%dT%H:%M:%SZ}\n".encode()
            os.pwrite(handle, note.ljust(200), 0)
            yield
        finally:
            # Said aloud: a child forked meanwhile shares the lock, and closing alone would leave it held.
            fcntl.flock(handle, fcntl.LOCK_UN)
    finally:
        os.close(handle)
