"""Artifacts: the squashfs files of a site, each named by its hash."""

from pathlib import Path

from bedplate.act import enroot
from bedplate.model.faults import BadInput, Fault, Refused
from bedplate.sources.site import Site, shown


def artifact_path(site: Site, squashfs_sha256: str) -> Path:
    return site.root / "artifacts" / f"{squashfs_sha256.replace(':', '-')}.sqsh"


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
    if enroot.fingerprint(path)[:2] != (squashfs_sha256, size):
        what = f"{shown(path)} does not have the bytes that its name says"
        raise Refused(f"{what}: look why, remove it, then run: bedplate image import ENV")
    return path
