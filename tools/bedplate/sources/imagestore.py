"""Images on this machine: manifests and blobs by their sha256, in an OCI layout that all images share.

- A file has its name when its bytes have been hashed to it; nothing else gets one.
- A manifest is there when all of its blobs are: it is written last.
- What is handed out was hashed again: a disk that rots is found, not believed.

A manifest of Docker's type may be in it as well, so the digest that the registry knows stays the digest.
"""

import hashlib
import json
import os
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
            file = folder / blob.hexadecimal
            with file.open("rb") as opened:
                os.fsync(opened.fileno())
            file.rename(target / blob.hexadecimal)
        sync_directory(target)
        write_whole(self.root / "oci-layout", '{"imageLayoutVersion": "1.0.0"}\n')
        write_whole(self.path(digest), raw)
        self._list(manifest, source)
        return Image(self, manifest)

    def _list(self, manifest: Manifest, source: str) -> None:
        """index.json names what is here, for people and for other programs; nothing here reads it."""
        path = self.root / "index.json"
        try:
            listed = json.loads(path.read_bytes())["manifests"]
        except (FileNotFoundError, ValueError, KeyError):
            listed = []
        entry = {
            "mediaType": manifest.media_type, "digest": manifest.digest, "size": len(manifest.raw),
            "annotations": {"org.opencontainers.image.ref.name": source},
        }  # fmt: skip
        listed = [each for each in listed if each.get("digest") != manifest.digest]
        write_whole(path, json.dumps({"schemaVersion": 2, "manifests": [*listed, entry]}, indent=2) + "\n")


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
