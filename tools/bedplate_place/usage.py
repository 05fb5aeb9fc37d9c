"""Who holds a file: processes that have it open or mapped, loop devices, mounts.

A file is known by device and inode, so under whatever name it was opened, in whatever mount namespace. A kernel does
not say by inode what a mount was made of (loop devices do): there the name tells, which has the file's hash in it.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import re
import struct

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator

PROC = "/proc"
SYS_BLOCK = "/sys/block"
LOOP_GET_STATUS64 = 0x4C05  # linux/loop.h: lo_device and lo_inode are its first two fields
STATUS64 = struct.Struct("=QQ216x")
HASH = re.compile(rb"[0-9a-f]{64}")
MAPPED = re.compile(rb"\S+ \S+ \S+ ([0-9a-f]+):([0-9a-f]+) (\d+)")
MOST = 5  # holders that are named


class Usage:
    """Looks anew for each file: what was so a moment ago does not count."""

    def of(self, path: str) -> list[str]:
        """Who holds it, in words; the first few. Nobody: an empty list."""
        status = os.lstat(path)
        found: list[str] = []
        for holder in self._holders((status.st_dev, status.st_ino), os.path.basename(path).encode()):
            if holder not in found:
                found.append(holder)
            if len(found) == MOST:
                break
        return found

    def _holders(self, inode: tuple[int, int], name: bytes) -> Iterator[str]:
        yield from self._loops(inode, name)
        for pid in filter(str.isdigit, os.listdir(PROC)):
            try:
                yield from self._process(pid, inode, name)
            except OSError as fault:  # noqa: PERF203  it may end while it is looked at
                if not _ended(pid):
                    yield f"process {pid} ({_comm(pid)}) may hold it: {fault}"

    def _process(self, pid: str, inode: tuple[int, int], name: bytes) -> Iterator[str]:
        who = f"process {pid} ({_comm(pid)})"
        for number in os.listdir(f"{PROC}/{pid}/fd"):
            with contextlib.suppress(FileNotFoundError):
                status = os.stat(f"{PROC}/{pid}/fd/{number}")
                if (status.st_dev, status.st_ino) == inode:
                    yield who
        with open(f"{PROC}/{pid}/maps", "rb") as maps:
            for line in maps:
                mapped = MAPPED.match(line)
                if mapped and int(mapped[3]) == inode[1]:
                    # The device of a mapping is not always the one that stat names (btrfs, overlay): the inode decides.
                    yield f"{who}, mapped"
        for mount in _mounts(pid, name):
            yield f"mount {mount} of process {pid}"

    def _loops(self, inode: tuple[int, int], name: bytes) -> Iterator[str]:
        for device in sorted(os.listdir(SYS_BLOCK)):
            if not device.startswith("loop"):
                continue
            try:
                with open(f"{SYS_BLOCK}/{device}/loop/backing_file", "rb") as file:
                    backing = file.read()
            except OSError:
                continue  # a loop device without a file
            if _same_hash(backing, name) or _backing_inode(device) == inode:
                yield f"/dev/{device}"


def _mounts(pid: str, name: bytes) -> Iterator[str]:
    with open(f"{PROC}/{pid}/mountinfo", "rb") as mounts:
        for line in mounts:
            words = line.split()
            source = words[words.index(b"-") + 2]
            if _same_hash(words[3], name) or _same_hash(source, name):  # a bind mount of the file; a mount of it
                yield words[4].decode(errors="replace")


def _same_hash(text: bytes, name: bytes) -> bool:
    wanted = HASH.findall(name)
    return bool(wanted) and wanted == HASH.findall(text.rpartition(b"/")[2])


def _backing_inode(device: str) -> tuple[int, int] | None:
    try:
        opened = os.open(f"/dev/{device}", os.O_RDONLY | os.O_CLOEXEC)
    except OSError:
        return None  # no such device node here: its path has to do
    try:
        dev, ino = STATUS64.unpack(fcntl.ioctl(opened, LOOP_GET_STATUS64, bytes(STATUS64.size)))
    except OSError:
        return None
    else:
        return dev, ino
    finally:
        os.close(opened)


def _ended(pid: str) -> bool:
    """Has the process ended, but for what its parent has to read? Such a one holds nothing."""
    try:
        with open(f"{PROC}/{pid}/stat", "rb") as file:
            return file.read().rpartition(b")")[2].split()[0] in (b"Z", b"X")
    except FileNotFoundError:
        return True


def _comm(pid: str) -> str:
    with open(f"{PROC}/{pid}/comm", "rb") as file:
        return file.read().decode(errors="replace").strip()
