"""A suite on disk: what its signed index vouches for."""

from pathlib import Path

from bedplate.act.archive.place import file_sha256
from bedplate.decide.archive import Listed, index_files, release_files
from bedplate.model.canonical import sha256
from bedplate.model.faults import Refused
from bedplate.sources.signature import Keyring


class Damaged(Refused):
    """What lies there is not what the site's key signed."""


def inrelease_sha256(folder: Path) -> str | None:
    """Which suite it is, to the byte; None where there is none."""
    path = folder / "InRelease"
    return sha256(path.read_bytes()) if path.is_file() else None


def packages_of(keys: Keyring, folder: Path) -> dict[str, Listed]:
    """The packages of a suite: path below the archive's root -> what lies there.

    Raises:
        Damaged: signature or indices do not hold.
    """
    signed = keys.signed(folder / "InRelease")
    if signed.problem:
        raise Damaged(f"{folder}/InRelease {signed.problem} (run: bedplate archive verify)")
    files: dict[str, Listed] = {}
    try:
        for path, listed in release_files(signed.text).items():
            file = folder / path
            if not file.is_file() or file_sha256(file) != listed.sha256:
                raise Damaged(f"{file} is not the file that was signed (run: bedplate archive verify)")
            if file.name == "Packages":
                files |= index_files(file.read_text("utf-8", "replace"))
    except ValueError as fault:
        raise Damaged(f"{folder}: {fault}") from fault
    return files
