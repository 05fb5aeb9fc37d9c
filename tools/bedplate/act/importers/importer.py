"""What every importer is, and the squashfs tools that all of them stand on."""

import re
import shutil
from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar, Protocol

from bedplate.decide.images.compression import squash_options
from bedplate.decide.images.rootfs import Tree
from bedplate.decide.squashfs import tool_faults
from bedplate.model.faults import BadInput
from bedplate.process import run
from bedplate.sources.imagestore import Image

IMPORT_TIMEOUT_S = 4 * 3600.0


@dataclass(frozen=True)
class Work:
    """What an import is made of and where.

    tree: what the image's layers and Enroot's files amount to. options: of mksquashfs.
    """

    image: Image
    tree: Tree
    repository: str
    folder: Path
    log: Path
    options: str = squash_options()

    @property
    def output(self) -> Path:
        return self.folder / "image.sqsh"


@dataclass(frozen=True)
class Made:
    """tool: name and versions; options: of mksquashfs; uri: what was imported, as the tool was told."""

    tool: str
    options: str
    uri: str


class Importer(Protocol):
    """needs: space on the disk, as a multiple of the compressed layers. own: files whose bytes are the tool's own."""

    name: ClassVar[str]
    needs: ClassVar[float]
    own: ClassVar[frozenset[str]]

    def check(self) -> None:
        """Is all of it installed, in versions that can be believed?

        Raises:
            BadInput: every reason why not.
        """

    def make(self, work: Work) -> Made:
        """Write work.output.

        Raises:
            ProcessFailed, BedplateError: it did not come to a good end.
        """


def mksquashfs_version() -> str:
    """What mksquashfs says it is, e.g. 4.6.1.

    Raises:
        BadInput: it is not installed, or says something else.
    """
    if not shutil.which("mksquashfs"):
        raise BadInput("no program mksquashfs (install the package squashfs-tools)")
    said = run(("mksquashfs", "-version"), check=False, timeout_s=30).out
    found = re.match(r"mksquashfs version ([0-9][0-9A-Za-z.+~-]*)", said)
    if found is None:
        raise BadInput(f'mksquashfs says that its version is "{said[:80].strip()}": expected 4.6.1 or the like')
    return found[1]


def check_squashfs_tools() -> None:
    """Mksquashfs is there and damages nothing; unsquashfs is there to prove it.

    Raises:
        BadInput: every reason why not.
    """
    faults = tool_faults(mksquashfs_version())
    if not shutil.which("unsquashfs"):
        faults.append("no program unsquashfs (install the package squashfs-tools)")
    if faults:
        raise BadInput("\n".join(faults))
