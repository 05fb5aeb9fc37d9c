"""Squashfs files and their tools: is a file at least as long as its superblock says, is a tool to be believed?

A truncated file lists without an error (unsquashfs -l ends with 0): its length is the cheap test, the sha256
the sure one.
"""

import struct

from bedplate.decide.rules.squashfs_tools import CORRUPTING
from bedplate.model.versions import at_least, parse_range

IMAGES = "/var/lib/bedplate/images"  # on a node; the default of role image, a test compares

OLDEST = "4.5"  # the first whose mksquashfs has -tar, and whose unsquashfs writes pseudo files

SUPERBLOCK_BYTES = 96
_MAGIC = 0x73717368  # "hsqs"
_LAYOUT = struct.Struct("<5I6H8Q")  # see squashfs_super_block in Linux' fs/squashfs/squashfs_fs.h
_MAJOR, _BYTES_USED = 9, 12  # positions in it


def tool_faults(version: str) -> list[str]:
    """What is wrong with the mksquashfs of a version; nothing: what it writes is believed, after a look."""
    said = f"mksquashfs {version}"
    faults = [
        f"{said} {why}: install {instead}"
        for text, why, instead in CORRUPTING
        if (bad := parse_range(text)) is not None and bad.holds(version)
    ]
    if not at_least(version, OLDEST):
        faults.append(f"{said} cannot read a tar stream: install {OLDEST} or later")
    return faults


def squashfs_faults(head: bytes, size: int) -> list[str]:
    """What is wrong with a file of that size that begins with head; nothing: it looks whole."""
    if len(head) < SUPERBLOCK_BYTES:
        return [f"{size} bytes are too short for a squashfs"]
    fields = _LAYOUT.unpack(head[:SUPERBLOCK_BYTES])
    if fields[0] != _MAGIC:
        return [f"no squashfs: it begins with {head[:4]!r}"]
    if fields[_MAJOR] != 4:  # noqa: PLR2004  the only version that kernels mount
        return [f"squashfs version {fields[_MAJOR]}, expected 4"]
    if fields[_BYTES_USED] > size:
        return [f"cut off: it says that it has {fields[_BYTES_USED]} bytes, the file has {size}"]
    return []
