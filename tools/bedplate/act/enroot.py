"""Enroot: from an image in a registry to one squashfs file, checked before it is believed.

Enroot hashes layers and configuration but not the manifest it gets, writes to the final name at once, and a
killed import leaves a file that lists without an error. So: the manifest is checked before (image/importing.py), the
file is written under another name, looked at, hashed, synced, and only then takes the name of its hash.
"""

import hashlib
import os
from pathlib import Path

from bedplate.act.builders.buildah import EPOCH_S
from bedplate.decide.buildrecord import BuildRecord, Squashfs
from bedplate.decide.reference import enroot_uri, parse_reference
from bedplate.decide.squashfs import SUPERBLOCK_BYTES, squashfs_faults
from bedplate.model.faults import BedplateError, Refused
from bedplate.process import ProcessFailed, run
from bedplate.sources.files import sync_directory

# Enroot's own default, lzo with uncompressed data, is 18 GB where this is 7 (PyTorch 25.09), on every node.
SQUASH_OPTIONS = "-comp zstd -Xcompression-level 3 -b 1M -exit-on-error"
IMPORT_TIMEOUT_S = 4 * 3600.0
CHUNK_BYTES = 4 * 1024 * 1024


def version() -> str:
    """What enroot says it is, e.g. 4.1.2."""
    return run(("enroot", "version"), timeout_s=30).out.strip()


def import_image(record: BuildRecord, site: Path, log: Path) -> Squashfs:
    """Make the squashfs of a pushed image below artifacts/ of the site.

    Raises:
        ProcessFailed: enroot failed.
        BedplateError: its file is not whole.
        Refused: an artifact with that name and other bytes is there.
    """
    said = version()
    uri = enroot_uri(record.repository, record.manifest_digest, said)
    folder = site / "artifacts"
    folder.mkdir(exist_ok=True)
    temp = folder / f".import-{record.name}.sqsh"
    temp.unlink(missing_ok=True)  # of a killed import: enroot would refuse to write over it
    # With an epoch enroot stamps every file and the file system with it: the same image, the same bytes.
    env = {**os.environ, "SOURCE_DATE_EPOCH": str(EPOCH_S), "ENROOT_SQUASH_OPTIONS": SQUASH_OPTIONS}
    try:
        _import(uri, temp, env, log, host=parse_reference(record.repository).host)
        digest, size, head = fingerprint(temp)
        if faults := squashfs_faults(head, size):
            raise BedplateError(f"enroot import {uri}: {'; '.join(faults)} (import again; log: {log})")
        final = folder / f"{digest.replace(':', '-')}.sqsh"
        keep(temp, final, digest)
    finally:
        temp.unlink(missing_ok=True)
    return Squashfs(digest, size, str(final.relative_to(site)), f"enroot {said}", SQUASH_OPTIONS, uri)


def keep(temp: Path, final: Path, digest: str) -> None:
    """Give a finished file the name of its hash; what has that name already is never written over.

    Raises:
        Refused: it is there, with other bytes.
    """
    if final.exists():
        if fingerprint(final)[0] != digest:
            raise Refused(f"{final} does not have the bytes that its name says: look why, then remove it")
        return
    temp.chmod(0o444)
    with temp.open("rb") as file:
        os.fsync(file.fileno())
    temp.rename(final)
    sync_directory(final.parent)


def fingerprint(path: Path) -> tuple[str, int, bytes]:
    """sha256, size and the first bytes of a file, in one pass."""
    digest, size, head = hashlib.sha256(), 0, b""
    with path.open("rb") as file:
        while chunk := file.read(CHUNK_BYTES):
            head = head or chunk[:SUPERBLOCK_BYTES]
            digest.update(chunk)
            size += len(chunk)
    return f"sha256:{digest.hexdigest()}", size, head


def _import(uri: str, output: Path, env: dict[str, str], log: Path, *, host: str) -> None:
    try:
        run(("enroot", "import", "--output", output, uri), timeout_s=IMPORT_TIMEOUT_S, env=env, log=log)
    except ProcessFailed as fault:
        said = fault.finished.err
        if "JSON input" in said or "401" in said:  # how enroot says that the registry wants a password
            machine = host.partition(":")[0]
            raise ProcessFailed(
                fault.finished,
                f"enroot was not let in by {host} (its credentials: a line `machine {machine} login USER password …`"
                " in ~/.config/enroot/.credentials)",
            ) from fault
        raise
    if not output.is_file():
        raise BedplateError(f"enroot import {uri} ended well but wrote no file (log: {log})")
