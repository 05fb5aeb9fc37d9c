"""The file on this node's disk: under a hidden name until it is whole, and sealed once it has its final one."""

from __future__ import annotations

import contextlib
import fcntl
import os
import re
import stat

from bedplate_place import seal
from bedplate_place.faults import BUSY, NO_SPACE, OTHER_BYTES, Failed

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator
    from typing import Any

NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,200}")
IMAGE = re.compile(r"sha256-[0-9a-f]{64}\.sqsh")  # what is sealed: not a patch, which is gone soon


class Wanted:
    """The file that is asked for: its name in the directory, its sha256 in hex, its size in bytes."""

    def __init__(self, directory: str, spec: dict[str, Any]) -> None:
        self.directory = directory
        self.name: str = spec["name"]
        self.sha256: str = spec["sha256"]
        self.size: int = spec["size"]
        if not NAME.fullmatch(self.name):
            raise ValueError(f"no name of a file: {self.name!r}")
        self.sealed = IMAGE.fullmatch(self.name) is not None
        self.look: seal.Look | None = None  # at the part that was found right

    @property
    def path(self) -> str:
        return os.path.join(self.directory, self.name)

    def part(self, kind: str) -> str:
        """Where it grows; each kind of transfer has its own: one fills from the front, another anywhere."""
        return os.path.join(self.directory, self.part_name(kind))

    def part_name(self, kind: str) -> str:
        return f".{self.name}.{kind}"

    def there(self) -> bool:
        """Is it in place, with all of its bytes? An image gets its seal then, if it has none, however it came."""
        if regular_size(self.path) != self.size:
            return False
        if not self.sealed:
            return self._looked_at(self.path).sha256 == self.sha256
        try:
            seal.seal(self.path, dry=False)
        except seal.Refused:
            return False
        return True

    def _looked_at(self, path: str) -> seal.Look:
        handle = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NOFOLLOW)
        try:
            os.fsync(handle)
            return seal.Look(handle, dry=not self.sealed)
        except seal.Refused as fault:
            raise Failed(OTHER_BYTES, f"{path}: {fault}") from fault
        finally:
            os.close(handle)

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
        look = self._looked_at(part)
        if look.sha256 != self.sha256:
            os.unlink(part)
            raise Failed(OTHER_BYTES, f"received other bytes: sha256 {look.sha256}")
        os.chmod(part, 0o444)
        self.look = look

    def publish(self, part: str) -> None:
        """Give a part that was checked its final name."""
        os.rename(part, self.path)
        self.published()

    def published(self) -> None:
        """It has its name: seal it, by what was seen when it was looked at."""
        sync_directory(self.directory)
        for entry in os.listdir(self.directory):  # what other ways left of the same file
            if entry.startswith(f".{self.name}."):
                with contextlib.suppress(OSError):
                    os.unlink(os.path.join(self.directory, entry))
        if self.sealed and self.look:
            seal.write(f"{self.path}.sealed", self.look.line)


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


def sync_directory(directory: str) -> None:
    opened = os.open(directory, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(opened)
    finally:
        os.close(opened)
