"""Images on this machine: manifests and blobs by their sha256, in an OCI layout that all images share.

- A file has its name when its bytes have been hashed to it; nothing else gets one.
- A manifest is there when all of its blobs are: it is written last.
- What is handed out was hashed again: a disk that rots is found, not believed.

A manifest of Docker's type may be in it as well, so the digest that the registry knows stays the digest.
"""

import contextlib
import fcntl
import hashlib
import json
import os
from collections.abc import Collection, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from bedplate.model.canonical import sha256
from bedplate.model.faults import Refused
from bedplate.sources.files import sync_directory, write_whole
from bedplate.sources.registry import Blob, Manifest, WrongBytes, read_manifest

CHUNK_BYTES = 4 * 1024 * 1024


@dataclass(frozen=True)
class Image:
    """A whole image of the store."""

    store: "ImageStore"
    manifest: Manifest

    @property
    def config(self) -> dict[str, Any]:
        document = json.loads(self.path(self.manifest.config).read_bytes())
        if not isinstance(document, dict):
            raise Refused(f"{self.manifest.digest}: its configuration is no JSON object")
        return document

    @property
    def layers(self) -> list[tuple[Path, str]]:
        """The blobs of the layers with their diff ids, bottom first.

        Raises:
            Refused: manifest and configuration do not speak of the same layers.
        """
        ids = (self.config.get("rootfs") or {}).get("diff_ids") or []
        layers = self.manifest.layers
        if len(ids) != len(layers):
            raise Refused(f"{self.manifest.digest}: {len(layers)} layers, its configuration has {len(ids)} diff ids")
        return [(self.path(layer), str(diff_id)) for layer, diff_id in zip(layers, ids, strict=True)]

    def path(self, blob: Blob) -> Path:
        return self.store.path(blob.digest)


class ImageStore:
    def __init__(self, root: Path) -> None:
        self.root = root

    def path(self, digest: str) -> Path:
        return self.root / "blobs/sha256" / digest.removeprefix("sha256:")

    def has(self, digest: str) -> bool:
        return self.path(digest).exists()

    def image(self, digest: str) -> Image | None:
        """A whole image, every byte of it hashed now; None: it is not here.

        What is damaged is removed, so that it can be fetched again.

        Raises:
            Damaged: it was here, and is not what its name says.
        """
        if not self.has(digest):
            return None
        raw = self.path(digest).read_bytes()
        if sha256(raw) != digest:
            self.path(digest).unlink()
            raise Damaged(f"{self.path(digest)}: damaged, and removed: not the bytes that its name says")
        manifest = read_manifest(raw, "", digest)
        wrong = [blob for blob in manifest.blobs if not is_whole(self.path(blob.digest), blob)]
        if wrong:
            self.path(digest).unlink()
            for blob in wrong:
                self.path(blob.digest).unlink(missing_ok=True)
            names = ", ".join(blob.digest for blob in wrong)
            raise Damaged(f"{self.root}: damaged or gone, and removed: {names}")
        return Image(self, manifest)

    def take(self, folder: Path, digest: str, source: str) -> Image:
        """Move an image in from a directory as skopeo writes it (dir:), after a look at every byte.

        Raises:
            WrongBytes: a manifest or blob is not what it is called; nothing of it is kept.
        """
        raw = (folder / "manifest.json").read_bytes()
        if sha256(raw) != digest:
            raise WrongBytes(f"{source}: asked for {digest}, and copied was {sha256(raw)} (do not go on)")
        manifest = read_manifest(raw, "", source)
        for blob in manifest.blobs:
            if not is_whole(folder / blob.hexadecimal, blob):
                raise WrongBytes(f"{source}: blob {blob.digest} was copied with other bytes (do not go on)")
        target = self.root / "blobs/sha256"
        target.mkdir(parents=True, exist_ok=True)
        for blob in manifest.blobs:
            with (folder / blob.hexadecimal).open("rb") as opened:
                os.fsync(opened.fileno())
        with self._turn():
            for blob in manifest.blobs:
                (folder / blob.hexadecimal).rename(target / blob.hexadecimal)
            sync_directory(target)
            write_whole(self.root / "oci-layout", '{"imageLayoutVersion": "1.0.0"}\n')
            write_whole(self.path(digest), raw)
            self._list(manifest, source)
        return Image(self, manifest)

    def collect(self, keep: Collection[str], *, remove: bool) -> list[tuple[Path, int]]:
        """Files that no image of `keep` (digests of manifests) is made of, with their sizes; removed where asked for.

        Raises:
            Refused: the manifest of one that is kept cannot be read, so that nobody knows what it is made of.
        """
        target = self.root / "blobs/sha256"
        if not target.is_dir():
            return []
        with self._turn():
            needed = {name for digest in keep for name in self._made_of(digest)}
            found = [(path, path.stat().st_size) for path in sorted(target.iterdir()) if path.name not in needed]
            if remove and found:
                # The list first: what it names is there at any moment.
                self._write_list([each for each in self._listed() if each.get("digest") in keep])
                for path, _ in found:
                    path.unlink()
                sync_directory(target)
        return found

    def _made_of(self, digest: str) -> set[str]:
        if not self.has(digest):
            return set()
        raw = self.path(digest).read_bytes()
        if sha256(raw) != digest:
            raise Refused(
                f"{self.path(digest)}: damaged, and needed (run: bedplate image verify ENV); nothing was removed"
            )
        blobs = read_manifest(raw, "", digest).blobs
        return {self.path(digest).name, *(blob.hexadecimal for blob in blobs)}

    @contextlib.contextmanager
    def _turn(self) -> Iterator[None]:
        """One at a time moves images in or out; the kernel lets go of the lock of a dead process."""
        held = os.open(self.root, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        try:
            fcntl.flock(held, fcntl.LOCK_EX)
            yield
        finally:
            os.close(held)

    def _list(self, manifest: Manifest, source: str) -> None:
        """index.json names what is here, for people and for other programs; nothing here reads it."""
        entry = {
            "mediaType": manifest.media_type, "digest": manifest.digest, "size": len(manifest.raw),
            "annotations": {"org.opencontainers.image.ref.name": source},
        }  # fmt: skip
        self._write_list([*(each for each in self._listed() if each.get("digest") != manifest.digest), entry])

    def _listed(self) -> list[dict[str, Any]]:
        try:
            return list(json.loads((self.root / "index.json").read_bytes())["manifests"])
        except (FileNotFoundError, ValueError, KeyError):
            return []

    def _write_list(self, manifests: list[dict[str, Any]]) -> None:
        text = json.dumps({"schemaVersion": 2, "manifests": manifests}, indent=2) + "\n"
        write_whole(self.root / "index.json", text)


class Damaged(Refused):
    """It was whole once; what is damaged of it was removed."""


def is_whole(path: Path, blob: Blob) -> bool:
    """Does a file have the size and the sha256 of a blob?"""
    try:
        if path.stat().st_size != blob.size:
            return False
        with path.open("rb") as file:
            return hashlib.file_digest(file, "sha256").hexdigest() == blob.hexadecimal
    except FileNotFoundError:
        return False


def as_directory(image: Image, folder: Path) -> Path:
    """The image as a directory that skopeo reads (dir:), made of hard links; folder is on the same disk."""
    folder.mkdir()
    for blob in image.manifest.blobs:
        os.link(image.path(blob), folder / blob.hexadecimal)
    (folder / "manifest.json").write_bytes(image.manifest.raw)
    (folder / "version").write_text("Directory Transport Version: 1.1\n")
    return folder
