"""Layers of an image on this machine: their members, with the hash of every file.

A layer is gzip, zstd or a plain tar; its first bytes say which, whatever its media type claims. What is inside is
compared with the diff id of the configuration: the sha256 of the archive as it was before it was compressed.
"""

import gzip
import hashlib
import tarfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO, BinaryIO, cast

from bedplate.decide.images.rootfs import Entry, Kind
from bedplate.model.faults import Refused
from bedplate.process import streaming

_GZIP, _ZSTD = b"\x1f\x8b", b"\x28\xb5\x2f\xfd"
_CHUNK_BYTES = 1024 * 1024
_TIMEOUT_S = 4 * 3600.0
_XATTR = "SCHILY.xattr."  # tar's and buildkit's name for an extended attribute
_KINDS = {
    tarfile.DIRTYPE: Kind.DIRECTORY, tarfile.SYMTYPE: Kind.SYMLINK, tarfile.LNKTYPE: Kind.HARDLINK,
    tarfile.FIFOTYPE: Kind.FIFO, tarfile.CHRTYPE: Kind.DEVICE, tarfile.BLKTYPE: Kind.DEVICE,
}  # fmt: skip


def entries(blob: Path, diff_id: str) -> list[Entry]:
    """Every member of a layer, in its order.

    Raises:
        Refused: it cannot be read to its end, or does not have the diff id of the image's configuration.
        ProcessFailed: zstd is not there, or failed.
    """
    found = []
    with _opened(blob) as file:
        hashing = _Hashing(file)
        try:
            with tarfile.open(fileobj=cast("IO[bytes]", hashing), mode="r|") as tar:
                for position, member in enumerate(tar):
                    data = tar.extractfile(member) if member.isreg() else None
                    found.append(_entry(position, member, _sha256(data) if data else ""))
            hashing.drain()
        except (OSError, tarfile.TarError, EOFError, ValueError) as fault:
            raise Refused(f"{blob}: this layer cannot be read: {fault}") from fault
    if hashing.digest != diff_id:
        raise Refused(f"{blob}: inside is {hashing.digest}, the image's configuration says {diff_id}")
    return found


@contextmanager
def members(blob: Path) -> Iterator[Iterator[tuple[int, tarfile.TarInfo, IO[bytes] | None]]]:
    """The members once more, with the bytes of files: by their places, as `entries` counts them."""
    with _opened(blob) as file, tarfile.open(fileobj=cast("IO[bytes]", file), mode="r|") as tar:
        yield (
            (position, member, tar.extractfile(member) if member.isreg() else None)
            for position, member in enumerate(tar)
        )


def _entry(position: int, member: tarfile.TarInfo, sha256: str) -> Entry:
    kind = Kind.FILE if member.isreg() else _KINDS.get(member.type)
    if kind is None:
        raise tarfile.ReadError(f"{member.name} is of a type that nobody knows: {member.type!r}")
    return Entry(
        position=position,
        path=member.name,
        kind=kind,
        mode=member.mode,
        uid=member.uid,
        gid=member.gid,
        mtime=int(member.mtime),
        target=member.linkname,
        size=member.size if member.isreg() else 0,
        sha256=sha256,
        xattrs={key.removeprefix(_XATTR): value for key, value in member.pax_headers.items() if key.startswith(_XATTR)},
    )


@contextmanager
def _opened(blob: Path) -> Iterator[BinaryIO]:
    with blob.open("rb") as file:
        begins = file.read(4)
    with blob.open("rb") as file:  # anew: zstd is handed the descriptor, which a buffer would have read ahead of
        if begins.startswith(_GZIP):
            with gzip.open(file) as plain:
                yield cast("BinaryIO", plain)
        elif begins.startswith(_ZSTD):
            # Python has no zstd of its own before 3.14.
            with streaming(["zstd", "--decompress", "--stdout", "--quiet"], stdin=file, timeout_s=_TIMEOUT_S) as plain:
                yield plain
        else:
            yield file


def _sha256(data: IO[bytes]) -> str:
    digest = hashlib.sha256()
    while chunk := data.read(_CHUNK_BYTES):
        digest.update(chunk)
    return f"sha256:{digest.hexdigest()}"


class _Hashing:
    """A file that is hashed as it is read."""

    def __init__(self, file: BinaryIO) -> None:
        self._file, self._hash = file, hashlib.sha256()

    def read(self, size: int) -> bytes:
        chunk = self._file.read(size)
        self._hash.update(chunk)
        return chunk

    def drain(self) -> None:
        """What stands behind the end of the archive is of the layer too."""
        while self.read(_CHUNK_BYTES):
            pass

    @property
    def digest(self) -> str:
        return f"sha256:{self._hash.hexdigest()}"
