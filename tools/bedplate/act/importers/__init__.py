"""What makes one squashfs file of a verified image: Enroot where it is, an importer of our own where it is not.

An importer is given an image of the store, whose every byte was hashed, and never talks to its registry. What it
makes is compared with the image's layers, file by file, before it is believed (readback.py).
"""

import shutil

from bedplate.act.importers.embedded import Embedded
from bedplate.act.importers.enroot import Enroot
from bedplate.act.importers.importer import Importer

IMPORTERS: dict[str, type[Importer]] = {"enroot": Enroot, "embedded": Embedded}


def choose(name: str | None) -> Importer:
    """The importer of that name; None: Enroot if it is installed.

    Raises:
        BadInput: what it needs is not installed, or writes damaged files.
    """
    importer = IMPORTERS[name or ("enroot" if shutil.which("enroot") else "embedded")]()
    importer.check()
    return importer
