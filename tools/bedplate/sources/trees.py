"""Directories written whole or not at all."""

import os
import shutil
import tempfile
from collections.abc import Mapping
from pathlib import Path

from bedplate.model.faults import Refused
from bedplate.sources.files import sync_directory


def write_tree(folder: Path, files: Mapping[str, bytes], *, mark: str, mode: int = 0o600) -> None:
    """Replace a directory by these files (path in it -> bytes): written beside it, synced, renamed.

    mark: a file that only our own directories have; a directory without it is somebody else's.

    Raises:
        Refused: the directory is there, not empty, and somebody else's.
    """
    assert mark in files  # noqa: S101
    folder = folder.absolute()
    if folder.exists() and any(folder.iterdir()) and not (folder / mark).is_file():
        raise Refused(f"{folder}: there is something else in it: it has no {mark} (choose an empty or a new directory)")
    folder.parent.mkdir(parents=True, exist_ok=True)
    made = Path(tempfile.mkdtemp(dir=folder.parent, prefix=f".{folder.name}."))
    try:
        for path, data in files.items():
            place = made / path
            place.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
            with os.fdopen(os.open(place, os.O_WRONLY | os.O_CREAT | os.O_EXCL, mode), "wb") as file:
                file.write(data)
        os.sync()  # once for thousands of files
        old = made.with_name(made.name + ".old")
        if folder.exists():
            folder.replace(old)
        made.replace(folder)
        sync_directory(folder.parent)
        shutil.rmtree(old, ignore_errors=True)
    except BaseException:
        shutil.rmtree(made, ignore_errors=True)
        raise
