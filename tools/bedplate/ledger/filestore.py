"""Logs and files that events speak of, beside the ledger, each under the sha256 of its bytes.

Invariants:
- A file has its name only when it is whole: hashed while it is copied, synced, then linked under its hash.
- Nothing is replaced and nothing is removed; what is there already is hashed again before it is relied upon.
- An event names sha256 and size: so the chain covers the bytes, and `ledger verify` misses those that are gone.
"""

import hashlib
import io
import os
import tempfile
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO

from bedplate.model.canonical import DIGEST
from bedplate.model.faults import BadInput, BedplateError

CHUNK = 1 << 20


@dataclass(frozen=True)
class Stored:
    sha256: str
    size: int


class FileStore:
    """The store in a folder, which is made when the first file comes."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def put(self, source: Path) -> Stored:
        """Copy a file into the store.

        Raises:
            BadInput: there is no such file, or it cannot be read.
            BedplateError: the store cannot be written; nothing of it has the file's name.
        """
        try:
            with source.open("rb") as file:
                return self._put(file)
        except OSError as fault:
            if fault.filename == str(source):
                raise BadInput(f"{source}: cannot be read: {fault.strerror}") from fault
            raise self._unwritable(fault) from fault

    def put_bytes(self, data: bytes) -> Stored:
        """Put bytes into the store.

        Raises:
            BedplateError: the store cannot be written.
        """
        try:
            return self._put(io.BytesIO(data))
        except OSError as fault:
            raise self._unwritable(fault) from fault

    def _unwritable(self, fault: OSError) -> BedplateError:
        said = f"{self.folder}: {fault.strerror}; nothing was stored (see: df {self.folder})"
        return BedplateError(f"files of the ledger: {said}")

    def path(self, digest: str) -> Path:
        """Where a file lies, or would.

        Raises:
            BadInput: it is no digest.
        """
        if not DIGEST.fullmatch(digest):
            raise BadInput(f"{digest!r} is no digest (sha256: and 64 hex digits)")
        name = digest.removeprefix("sha256:")
        return self.folder / name[:2] / name

    def get(self, digest: str) -> Path:
        """The file with this hash, checked.

        Raises:
            BadInput: the store has none.
            BedplateError: its bytes hash to something else.
        """
        path = self.path(digest)
        if not path.is_file():
            raise BadInput(f"files of the ledger: {self.folder} has no {digest}")
        if (found := _hashed(path)) != digest:
            raise BedplateError(f"files of the ledger: {path} was damaged: it hashes to {found}")
        return path

    def wrong(self, digest: str, size: int, *, whole: bool) -> str | None:
        """What is wrong with a file that an event names; whole: hash it, which takes as long as reading it."""
        path = self.path(digest)
        try:
            there = path.stat().st_size
        except FileNotFoundError:
            return f"its file {digest} is not in {self.folder}"
        if there != size:
            return f"its file {digest} has {there} bytes, recorded are {size}"
        if whole and (found := _hashed(path)) != digest:
            return f"its file {digest} was damaged: it hashes to {found}"
        return None

    def _put(self, file: BinaryIO) -> Stored:
        self.folder.mkdir(mode=0o700, exist_ok=True)
        handle, name = tempfile.mkstemp(dir=self.folder, prefix=".part-")
        try:
            digest, size = hashlib.sha256(), 0
            with os.fdopen(handle, "wb") as copy:
                for chunk in _chunks(file):
                    digest.update(chunk)
                    size += len(chunk)
                    copy.write(chunk)
                copy.flush()
                os.fchmod(copy.fileno(), 0o400)
                os.fsync(copy.fileno())
            stored = Stored(f"sha256:{digest.hexdigest()}", size)
            place = self.path(stored.sha256)
            place.parent.mkdir(mode=0o700, exist_ok=True)
            with suppress(FileExistsError):
                place.hardlink_to(name)
            if _hashed(place) != stored.sha256:  # was there before, and damaged since: the whole one takes its place
                Path(name).replace(place)
            for folder in (place.parent, self.folder):
                _sync(folder)
            return stored
        finally:
            Path(name).unlink(missing_ok=True)


def _chunks(file: BinaryIO) -> Iterator[bytes]:
    while chunk := file.read(CHUNK):
        yield chunk


def _hashed(path: Path) -> str:
    with path.open("rb") as file:
        return "sha256:" + hashlib.file_digest(file, "sha256").hexdigest()


def _sync(folder: Path) -> None:
    handle = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)
