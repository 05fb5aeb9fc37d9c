"""The files of a wheel, and of a checkout, by their sha256: what decide/images/wheel.py compares."""

import hashlib
import zipfile
from pathlib import Path
from typing import Any

from bedplate.decide.images.wheel import wheel_difference
from bedplate.model.canonical import sha256
from bedplate.model.faults import BadInput, Fault

LEFT_OUT = ("__pycache__", ".git")


def wheel_files(wheel: Path) -> dict[str, str]:
    """Path in the wheel -> sha256; each member is read, so that its checksum was right.

    Raises:
        BadInput: it is no wheel.
    """
    try:
        with zipfile.ZipFile(wheel) as archive:
            return {info.filename: sha256(archive.read(info)) for info in archive.infolist() if not info.is_dir()}
    except (OSError, zipfile.BadZipFile, NotImplementedError, EOFError) as fault:
        raise BadInput([Fault(str(wheel), None, f"no wheel: {fault}")]) from fault


def file_sha256(file: Path) -> str:
    """Of the wheel itself.

    Raises:
        BadInput: it cannot be read.
    """
    try:
        with file.open("rb") as opened:
            return f"sha256:{hashlib.file_digest(opened, 'sha256').hexdigest()}"
    except OSError as fault:
        raise BadInput([Fault(str(file), None, f"cannot be read: {fault.strerror}")]) from fault


def tree_files(folder: Path) -> dict[str, str]:
    """Path in the folder -> sha256, of regular files; git's own and compiled Python are none of a commit's."""
    found = {}
    for path in sorted(folder.rglob("*")):
        inside = path.relative_to(folder)
        if path.is_file() and not path.is_symlink() and not any(part in LEFT_OUT for part in inside.parts):
            with path.open("rb") as file:
                found[inside.as_posix()] = f"sha256:{hashlib.file_digest(file, 'sha256').hexdigest()}"
    return found


def compared(wheel: Path, folder: Path) -> dict[str, Any]:
    """A wheel against the files of a commit: for a build record.

    Raises:
        BadInput: it is no wheel, or nothing of it is in the folder.
    """
    try:
        return wheel_difference(wheel_files(wheel), tree_files(folder))
    except ValueError as fault:
        raise BadInput(
            [Fault(str(folder), None, str(fault), "give the checkout that the wheel was made of")]
        ) from fault
