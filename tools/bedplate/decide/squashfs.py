"""The superblock of a squashfs 4 file: is the file at least as long as it says?

A truncated file lists without an error (unsquashfs -l ends with 0): its length is the cheap test, the sha256
the sure one.
"""

import struct

IMAGES = "/var/lib/bedplate/images"  # on a node; the default of role image, a test compares

SUPERBLOCK_BYTES = 96
_MAGIC = 0x73717368  # "hsqs"
_LAYOUT = struct.Struct("<5I6H8Q")  # see squashfs_super_block in Linux' fs/squashfs/squashfs_fs.h
_MAJOR, _BYTES_USED = 9, 12  # positions in it


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
