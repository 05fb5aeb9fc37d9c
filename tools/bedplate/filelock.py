"""One process at a time: a lock on an open file, which the kernel drops when its holder is gone, however it ended."""

import fcntl
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from bedplate.model.faults import Busy


@contextmanager
def alone(path: Path, busy: str, *, mode: int = 0o600) -> Iterator[None]:
    """Hold the lock of a file, which is made where it is not, or of a directory; the file says who holds it.

    Raises:
        Busy: another process has it. `busy` is the message; `{pid}` in it is that process, `?` where it is not known.
        OSError: the file cannot be opened.
    """
    flags = os.O_RDONLY | os.O_DIRECTORY if path.is_dir() else os.O_RDWR | os.O_CREAT
    handle = os.open(path, flags | os.O_CLOEXEC, mode)
    try:
        try:
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise Busy(busy.replace("{pid}", _holder(handle, flags))) from None
        if flags & os.O_RDWR:
            os.ftruncate(handle, 0)
            os.pwrite(handle, f"{os.getpid()}\n".encode(), 0)
        yield
    finally:
        os.close(handle)


def _holder(handle: int, flags: int) -> str:
    said = os.pread(handle, 20, 0).decode(errors="replace").strip() if flags & os.O_RDWR else ""
    return said or "?"
