"""Space on a disk, before hours of work end for the lack of it."""

import shutil
from pathlib import Path

from bedplate.model.faults import BadInput, Fault
from bedplate.sources.site import shown

GB = 1e9


def need(folder: Path, size_bytes: int, factor: float, what: str) -> None:
    """Is there space for what is to be written?

    Raises:
        BadInput: there is not, with how much is missing.
    """
    free = shutil.disk_usage(folder).free
    wanted = int(size_bytes * factor)
    if free < wanted:
        found = (
            f"{free / GB:.2f} GB are free, {what} needs about {wanted / GB:.2f} GB"
            f" ({size_bytes / GB:.2f} GB of layers x {factor:g})"
        )
        raise BadInput([Fault(shown(folder), None, found, "make space, or put the directory on another disk")])
