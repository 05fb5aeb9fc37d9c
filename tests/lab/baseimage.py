"""The base image: a minimal Debian root from real packages, as one OCI layer whose digest is the same every time."""

import gzip
import hashlib
import io
import json
import shutil
import tarfile
import tempfile
from dataclasses import dataclass
from pathlib import Path

from bedplate.process import run
from lab import debs
from lab.archive import downloads_path
from lab.places import Places
from lab.standins import EPOCH
from lab.steps import Steps
from lab.trees import architecture, key_of

EDITION = 1
CREATED = "2023-11-14T22:13:20Z"  # EPOCH
MANIFEST = "application/vnd.oci.image.manifest.v1+json"
CONFIG = "application/vnd.oci.image.config.v1+json"
LAYER = "application/vnd.oci.image.layer.v1.tar+gzip"


@dataclass(frozen=True)
class BaseImage:
    layout: Path  # an OCI layout with the tag `base`
    digest: str


def base_image(places: Places, steps: Steps) -> BaseImage:
    """The base image, from the cache where it is there; needs the archive's downloads."""
    target = places.cache / f"image-{key_of(EDITION, downloads_path(places).name)}"
    if not target.is_dir():
        with steps.step("base image: a minimal Debian root"):
            part = Path(tempfile.mkdtemp(prefix=f"{target.name}.part-", dir=places.cache))
            _build(part, downloads_path(places) / "image")
            part.rename(target)
    index = json.loads((target / "index.json").read_text())
    return BaseImage(target, index["manifests"][0]["digest"])


def _build(work: Path, packages: Path) -> None:
    root = work / "root"
    root.mkdir()
    for package in debs.debs(packages):
        run(["dpkg-deb", "--extract", package.path, root])
    for kind in ("passwd", "group"):
        shutil.copy(root / f"usr/share/base-passwd/{kind}.master", root / f"etc/{kind}")
    for applet in run([root / "usr/bin/busybox", "--list"]).out.split():
        path = root / "usr/bin" / applet
        if not path.exists():
            path.symlink_to("busybox")
    shutil.rmtree(root / "usr/share/doc", ignore_errors=True)
    shutil.rmtree(root / "usr/share/man", ignore_errors=True)
    layer_tar = _tar(root)
    layer = gzip.compress(layer_tar, compresslevel=6, mtime=0)
    shutil.rmtree(root)
    blobs = work / "blobs/sha256"
    blobs.mkdir(parents=True)
    config = _json({
        "architecture": architecture(), "os": "linux", "created": CREATED,
        "config": {
            "Cmd": ["/bin/sh"], "Env": ["PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"],
            "Labels": {"org.opencontainers.image.title": "Bedplate lab base: a minimal Debian root"},
        },
        "rootfs": {"type": "layers", "diff_ids": [_digest(layer_tar)]},
        "history": [{"created": CREATED, "created_by": "bedplate lab"}],
    })  # fmt: skip
    manifest = _json({
        "schemaVersion": 2, "mediaType": MANIFEST, "config": _descriptor(CONFIG, config),
        "layers": [_descriptor(LAYER, layer)],
    })  # fmt: skip
    for blob in (layer, config, manifest):
        (blobs / _digest(blob).removeprefix("sha256:")).write_bytes(blob)
    entry = {**_descriptor(MANIFEST, manifest), "annotations": {"org.opencontainers.image.ref.name": "base"}}
    (work / "oci-layout").write_bytes(_json({"imageLayoutVersion": "1.0.0"}))
    (work / "index.json").write_bytes(_json({"schemaVersion": 2, "manifests": [entry]}))


def _tar(root: Path) -> bytes:
    """A tar of a tree in one order, with one owner and one time."""
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w", format=tarfile.PAX_FORMAT) as tar:
        for path in sorted(root.rglob("*")):
            entry = tar.gettarinfo(path, str(path.relative_to(root)))
            entry.mtime, entry.uid, entry.gid, entry.uname, entry.gname = EPOCH, 0, 0, "", ""
            if entry.isfile():
                with path.open("rb") as content:
                    tar.addfile(entry, content)
            else:
                tar.addfile(entry)
    return buffer.getvalue()


def _json(document: object) -> bytes:
    return json.dumps(document, sort_keys=True, separators=(",", ":")).encode()


def _digest(data: bytes) -> str:
    return "sha256:" + hashlib.sha256(data).hexdigest()


def _descriptor(media_type: str, data: bytes) -> dict[str, object]:
    return {"mediaType": media_type, "digest": _digest(data), "size": len(data)}
