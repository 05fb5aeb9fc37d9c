"""The file on this node's disk: under a hidden name until it is whole."""

from __future__ import annotations

import contextlib
import fcntl
import hashlib
import os
import re
import stat

from bedplate_place.faults import BUSY, NO_SPACE, OTHER_BYTES, Failed

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator
    from typing import Any

CHUNK = 4 * 1024 * 1024
NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,200}")


class Wanted:
    """The file that is asked for: its name in the directory, its sha256 in hex, its size in bytes."""

    def __init__(self, directory: str, spec: dict[str, Any]) -> None:
        self.directory = directory
        self.name: str = spec["name"]
        self.sha256: str = spec["sha256"]
        self.size: int = spec["size"]
        if not NAME.fullmatch(self.name):
            raise ValueError(f"no name of a file: {self.name!r}")

    @property
    def path(self) -> str:
        return os.path.join(self.directory, self.name)

    def part(self, kind: str) -> str:
        """Where it grows; each kind of transfer has its own: one fills from the front, another anywhere."""
        return os.path.join(self.directory, self.part_name(kind))

    def part_name(self, kind: str) -> str:
        return f".{self.name}.{kind}"

    def there(self) -> bool:
        """Is it in place, with all of its bytes?"""
        return regular_size(self.path) == self.size and sha256(self.path) == self.sha256

    def check_space(self, kind: str) -> None:
        try:
            has = os.stat(self.part(kind)).st_blocks * 512
        except FileNotFoundError:
            has = 0
        system = os.statvfs(self.directory)
        free = system.f_bavail * system.f_frsize
        if has + free < self.size:
            raise Failed(NO_SPACE, f"no space in {self.directory}: needs {self.size - has} bytes, has {free}")

    def check(self, part: str) -> None:
        """Read the part through; what has other bytes is removed, for it cannot become right.

        Raises:
            Failed: it is not the file that is wanted.
        """
        found = regular_size(part)
        if found != self.size:
            raise Failed(OTHER_BYTES, f"received {found} of {self.size} bytes")
        with open(part, "rb") as file:
            os.fsync(file.fileno())
        digest = sha256(part)
        if digest != self.sha256:
            os.unlink(part)
            raise Failed(OTHER_BYTES, f"received other bytes: sha256 {digest}")
        os.chmod(part, 0o444)

    def publish(self, part: str) -> None:
        """Give a part that was checked its final name."""
        os.rename(part, self.path)
        self.published()

    def published(self) -> None:
        sync_directory(self.directory)
        for entry in os.listdir(self.directory):  # what other ways left of the same file
            if entry.startswith(f".{self.name}."):
                with contextlib.suppress(OSError):
                    os.unlink(os.path.join(self.directory, entry))


@contextlib.contextmanager
def turn(directory: str) -> Iterator[None]:
    """Hold the directory: one transfer or collection at a time. The kernel lets go of the lock of a dead process."""
    os.makedirs(directory, mode=0o755, exist_ok=True)
    held = os.open(directory, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        try:
            fcntl.flock(held, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise Failed(BUSY, "another transfer of an image to this node is running") from None
        yield
    finally:
        os.close(held)


def regular_size(path: str) -> int | None:
    """Bytes of a regular file; None: there is none, or something else."""
    try:
        status = os.lstat(path)
    except FileNotFoundError:
        return None
    return status.st_size if stat.S_ISREG(status.st_mode) else None


def sha256(path: str) -> str:
    digest = hashlib.sha256()
    with open(path, "rb", buffering=0) as file:
        buffer = bytearray(CHUNK)
        view = memoryview(buffer)
        while count := file.readinto(buffer):
            digest.update(view[:count])
    return digest.hexdigest()


def sync_directory(directory: str) -> None:
    opened = os.open(directory, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(opened)
    finally:
        os.close(opened)
