"""A finished squashfs, read to its last byte and compared with the layers that it was made of.

A list proves nothing (unsquashfs -l of a truncated or flipped file ends with 0), and mksquashfs has had versions
that wrote a file it could list and not give back: so every file is decompressed and hashed.
"""

import hashlib
from collections.abc import Collection
from pathlib import Path
from typing import BinaryIO

from bedplate.decide.images.pseudofile import START, Member, member
from bedplate.decide.images.rootfs import Found, Kind, Tree, differences
from bedplate.model.faults import Refused
from bedplate.process import streaming

_CHUNK_BYTES = 1024 * 1024
_TIMEOUT_S = 4 * 3600.0
_LONGEST_LINE = 64 * 1024


def check(squashfs: Path, tree: Tree, own: Collection[str], log: Path) -> int:
    """Compare a squashfs with a tree, and say how many paths it has. own: paths whose bytes are the importer's.

    Raises:
        Refused: it holds something else than the image.
        ProcessFailed: it cannot be read to its end.
    """
    found = read(squashfs)
    for path in own:
        node = tree.nodes.get(path)
        if path in found and node is not None and found[path].kind is node.kind:
            found[path] = Found(node.kind, node.size, node.sha256, node.target)
    if wrong := differences(tree, found):
        raise Refused(f"the squashfs does not hold what the image's layers hold: {'; '.join(wrong)} (log: {log})")
    return len(found)


def read(squashfs: Path) -> dict[str, Found]:
    """Every path of a squashfs with the hash of its bytes.

    Raises:
        Refused: what was read is not whole, or nothing that is known.
        ProcessFailed: unsquashfs failed, which it does where data are damaged.
    """
    command = ("unsquashfs", "-no-progress", "-strict-errors", "-pf", "/dev/stdout", str(squashfs))
    try:
        with streaming(command, timeout_s=_TIMEOUT_S) as output:
            members = _members(output)
            hashes = _hashes(output, [each for each in members.values() if each.kind is Kind.FILE])
    except ValueError as fault:
        raise Refused(f"{squashfs}: cannot be read back: {fault}") from fault
    found = {}
    for path, each in members.items():
        real = members.get(each.target) if each.kind is Kind.HARDLINK else each
        if real is None:
            raise Refused(f"{squashfs}: /{path} is a hard link to /{each.target}, which is not in it")
        found[path] = Found(real.kind, real.size, hashes.get(real.path, ""), real.target)
    return found


def _members(output: BinaryIO) -> dict[str, Member]:
    found: dict[str, Member] = {}
    while True:
        line = output.readline(_LONGEST_LINE)
        if line == START.splitlines(keepends=True)[0]:
            if line + output.readline(_LONGEST_LINE) + output.readline(_LONGEST_LINE) != START:
                raise ValueError("a line that begins with #")
            return found
        if not line.endswith(b"\n"):
            raise ValueError("it ends in the middle of the list")
        if each := member(line[:-1].decode(errors="surrogateescape")):
            found[each.path] = each


def _hashes(output: BinaryIO, files: list[Member]) -> dict[str, str]:
    """The sha256 of each file, by its path."""
    found, place = {}, 0
    for each in sorted(files, key=lambda file: (file.offset, file.size)):
        if each.size and each.offset != place:
            raise ValueError(f"the bytes of /{each.path} are not where they were announced")
        digest, left = hashlib.sha256(), each.size
        while left:
            chunk = output.read(min(left, _CHUNK_BYTES))
            if not chunk:
                raise ValueError(f"it ends in the middle of /{each.path}")
            digest.update(chunk)
            left -= len(chunk)
        place += each.size
        found[each.path] = f"sha256:{digest.hexdigest()}"
    if output.read(1):
        raise ValueError("there is more in it than its list says")
    return found
