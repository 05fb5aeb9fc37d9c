"""Artifacts: the squashfs files of a site, each named by its hash, with a record of what it was made of beside it.

A file gets its name when it is whole, hashed and on the disk; the record is there before it. So a file without a
record was put there by somebody else, and a record without a file says nothing.
"""

import hashlib
import json
import os
import shutil
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from bedplate.decide.squashfs import SUPERBLOCK_BYTES
from bedplate.model.faults import BadInput, Fault, Refused
from bedplate.sources.files import sync_directory, write_whole
from bedplate.sources.site import Site, shown

CHUNK_BYTES = 4 * 1024 * 1024


def artifact_path(site: Site, squashfs_sha256: str) -> Path:
    return site.root / "artifacts" / f"{squashfs_sha256.replace(':', '-')}.sqsh"


def record_path(artifact: Path) -> Path:
    """What an artifact was made of, beside it."""
    return artifact.with_suffix(".json")


def verified_artifact(site: Site, squashfs_sha256: str, size: int) -> Path:
    """The squashfs with that hash, read through to be sure.

    Raises:
        BadInput: it is not here.
        Refused: it has other bytes than its name says.
    """
    path = artifact_path(site, squashfs_sha256)
    if not path.exists():
        raise BadInput(
            [Fault(shown(path), None, "no such artifact", "run: bedplate image import ENV, or copy it there")]
        )
    if fingerprint(path)[:2] != (squashfs_sha256, size):
        what = f"{shown(path)} does not have the bytes that its name says"
        raise Refused(f"{what}: look why, remove it, then run: bedplate image import ENV")
    return path


@contextmanager
def staging(site: Site, name: str) -> Iterator[Path]:
    """A directory beside the artifacts for one import; what killed ones left is removed first.

    Never the same twice: the programs of a killed import may still be running, and writing into theirs.
    """
    folder = site.root / "artifacts"
    folder.mkdir(exist_ok=True)
    for left in folder.glob(f".import-{name}[.+]*"):
        if left.is_dir():
            shutil.rmtree(left, ignore_errors=True)
        else:
            left.unlink(missing_ok=True)
    path = Path(tempfile.mkdtemp(dir=folder, prefix=f".import-{name}+"))
    try:
        yield path
    finally:
        shutil.rmtree(path, ignore_errors=True)


def publish(site: Site, temp: Path, digest: str, made_of: Mapping[str, Any]) -> Path:
    """Give a finished file the name of its hash; what has that name already is never written over.

    Raises:
        Refused: it is there, with other bytes.
    """
    final = artifact_path(site, digest)
    if final.exists():
        if fingerprint(final)[0] != digest:
            raise Refused(f"{final} does not have the bytes that its name says: look why, then remove it")
        if record_path(final).exists():
            return final
    write_whole(record_path(final), json.dumps(made_of, indent=2, sort_keys=True) + "\n", mode=0o444)
    if not final.exists():
        temp.chmod(0o444)
        with temp.open("rb") as file:
            os.fsync(file.fileno())
        temp.rename(final)
        sync_directory(final.parent)
    return final


def fingerprint(path: Path) -> tuple[str, int, bytes]:
    """sha256, size and the first bytes of a file, in one pass."""
    digest, size, head = hashlib.sha256(), 0, b""
    with path.open("rb") as file:
        while chunk := file.read(CHUNK_BYTES):
            head = head or chunk[:SUPERBLOCK_BYTES]
            digest.update(chunk)
            size += len(chunk)
    return f"sha256:{digest.hexdigest()}", size, head
