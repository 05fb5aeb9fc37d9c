#!/usr/bin/python3 -IBS
"""Written by Bedplate: hash an image on this node's disk, and write down which file that was.

    bedplate-image-seal [--dry-run] PATH      PATH: DIRECTORY/sha256-HEX.sqsh
    bedplate-image-seal measure PATH          what fs-verity says of it, `-` where it has none

PATH.sealed is then one line: sha256, bytes, inode, mtime in seconds, and the measurement of fs-verity or `-`. With it
bedplate-importer knows at the start of a job, in a few milliseconds, that the file is the one that was hashed. Where
the file system has fs-verity (ext4 and f2fs made with it, btrfs) the file is made immutable first, so that what was
hashed is what stays. A file that does not hash to its name loses its seal (exit code 1). Needs Python 3.10 and no more.

Role image puts it on nodes as it is here, and `bedplate image place` seals what it places with it.
"""

from __future__ import annotations

import fcntl
import os
import stat
import struct
import sys

# linux/fsverity.h: _IOW('f', 133, struct fsverity_enable_arg), _IOWR('f', 134, struct fsverity_digest)
FS_IOC_ENABLE_VERITY, FS_IOC_MEASURE_VERITY = 0x40806685, 0xC0046686
SHA256, BLOCK = 1, 4096
ENABLE = struct.Struct("=IIIIQIIQ88x")  # version, algorithm, block size, no salt, no signature
CHUNK = 4 * 1024 * 1024
HEX = 64  # digits of a sha256


class Refused(Exception):
    """What is wrong, for a person."""


def measured(handle: int) -> str:
    """The file's digest as the kernel holds every read of it to; `-` where it has none."""
    answer = bytearray(struct.pack("=HH", 0, 64) + bytes(64))
    try:
        fcntl.ioctl(handle, FS_IOC_MEASURE_VERITY, answer)
    except OSError:
        return "-"
    _, size = struct.unpack_from("=HH", answer)
    return "fs-verity:" + answer[4 : 4 + size].hex()


def make_immutable(handle: int) -> str:
    """Turn fs-verity on; why not, where it is off afterwards."""
    try:
        fcntl.ioctl(handle, FS_IOC_ENABLE_VERITY, ENABLE.pack(1, SHA256, BLOCK, 0, 0, 0, 0, 0))
    except FileExistsError:
        return ""
    except OSError as fault:
        return fault.strerror or str(fault)
    return ""


def sha256(handle: int) -> str:
    import hashlib  # noqa: PLC0415  `measure` stands at the start of every job, and this takes longer than it

    found = hashlib.sha256()
    os.posix_fadvise(handle, 0, 0, os.POSIX_FADV_SEQUENTIAL)
    while data := os.read(handle, CHUNK):
        found.update(data)
    return found.hexdigest()


class Look:
    """A file that is open, read through: its sha256, what its seal says, and why it has no fs-verity."""

    def __init__(self, handle: int, *, dry: bool) -> None:
        self.why_not = "not tried" if dry else make_immutable(handle)
        before = about(handle)
        self.sha256 = sha256(handle)
        if about(handle) != before:
            raise Refused("it changed while it was read (look who writes it: fuser -v)")
        self.verity = measured(handle)
        self.line = f"sha256:{self.sha256} {before} {self.verity}\n"


def seal(path: str, *, dry: bool) -> str:
    """Hash it and write its seal; one sentence of what was done.

    Raises:
        Refused: it is no file that can be sealed, or has other bytes than its name says.
    """
    name = os.path.basename(path)
    wanted = name[7:-5]
    if name != f"sha256-{wanted}.sqsh" or len(wanted) != HEX or set(wanted) - set("0123456789abcdef"):
        raise Refused("its name is not sha256-HEX.sqsh (bedplate image place names it)")
    try:
        handle = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NOFOLLOW | os.O_NONBLOCK)
    except OSError as fault:
        raise Refused(f"{fault.strerror} (run: bedplate image place ENV --nodes THIS)") from fault
    try:
        if not stat.S_ISREG(os.fstat(handle).st_mode):
            raise Refused("no plain file (remove it, and run: bedplate image place ENV --nodes THIS)")
        look = Look(handle, dry=dry)
        if look.sha256 != wanted:
            if not dry and os.path.lexists(path + ".sealed"):
                os.unlink(path + ".sealed")
            raise Refused(f"it has sha256:{look.sha256} (remove it, and run: bedplate image place ENV --nodes THIS)")
    finally:
        os.close(handle)
    if look.line == said(path + ".sealed"):
        return "sealed, as it was"
    if not dry:
        write(path + ".sealed", look.line)
    return f"sealed now{'' if look.verity != '-' else f', without fs-verity: {look.why_not}'}"


def about(handle: int) -> str:
    """Size, inode and mtime, as `stat --format='%s %i %Y'` says them."""
    found = os.fstat(handle)
    return f"{found.st_size} {found.st_ino} {found.st_mtime_ns // 10**9}"


def said(path: str) -> str | None:
    try:
        with open(path, encoding="utf-8", errors="replace") as file:
            return file.read(4096)
    except OSError:
        return None


def write(path: str, text: str) -> None:
    """Whole or not at all."""
    import tempfile  # noqa: PLC0415  as above

    folder = os.path.dirname(path) or "."
    handle, temp = tempfile.mkstemp(dir=folder, prefix=f".{os.path.basename(path)}-")
    try:
        with os.fdopen(handle, "w", encoding="utf-8") as out:
            out.write(text)
            out.flush()
            os.fchmod(out.fileno(), 0o444)
            os.fsync(out.fileno())
        os.rename(temp, path)
    except BaseException:
        os.unlink(temp)
        raise
    handle = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


def main(words: list[str]) -> int:
    path = words[-1] if words else ""
    try:
        if words[:-1] == ["measure"]:
            with open(path, "rb") as file:
                print(measured(file.fileno()))  # noqa: T201
        elif words[:-1] in ([], ["--dry-run"]) and path:
            print(f"{path}: {seal(path, dry=len(words) > 1)}")  # noqa: T201
        else:
            print("usage: bedplate-image-seal [--dry-run] PATH | measure PATH", file=sys.stderr)  # noqa: T201
            return 2
    except (Refused, OSError) as fault:
        print(f"{path}: {fault}", file=sys.stderr)  # noqa: T201
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
