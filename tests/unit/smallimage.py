"""Small images made of given members, as skopeo writes them (dir:) or as the store holds them."""

import gzip
import hashlib
import io
import json
import subprocess
import tarfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from bedplate.sources.imagestore import Image, ImageStore
from bedplate.sources.registry import DOCKER_MANIFEST

NOON = 1_700_000_000


@dataclass(frozen=True)
class Member:
    name: str
    data: bytes | str = b""
    type: bytes = tarfile.REGTYPE
    link: str = ""
    mode: int = 0o644
    owner: tuple[int, int] = (0, 0)
    mtime: float = NOON
    xattrs: Mapping[str, str] = field(default_factory=dict)


def folder(name: str, mode: int = 0o755, mtime: float = NOON) -> Member:
    return Member(name, type=tarfile.DIRTYPE, mode=mode, mtime=mtime)


def link(name: str, to: str) -> Member:
    return Member(name, type=tarfile.SYMTYPE, link=to)


def hard(name: str, to: str) -> Member:
    return Member(name, type=tarfile.LNKTYPE, link=to)


def tar(members: Sequence[Member]) -> bytes:
    raw = io.BytesIO()
    with tarfile.open(fileobj=raw, mode="w", format=tarfile.PAX_FORMAT) as archive:
        for each in members:
            info = tarfile.TarInfo(each.name)
            data = each.data.encode() if isinstance(each.data, str) else each.data
            info.type, info.linkname, info.mode, info.mtime = each.type, each.link, each.mode, each.mtime
            info.uid, info.gid, info.size = *each.owner, len(data)
            info.pax_headers = {f"SCHILY.xattr.{key}": value for key, value in each.xattrs.items()}
            archive.addfile(info, io.BytesIO(data))
    return raw.getvalue()


def compressed(raw: bytes, how: str) -> bytes:
    if how == "zstd":
        return subprocess.run(["zstd", "--quiet", "--stdout"], input=raw, check=True, capture_output=True).stdout
    return gzip.compress(raw, mtime=0) if how == "gzip" else raw


def write(
    place: Path,
    layers: Sequence[Sequence[Member]],
    config: Mapping[str, object] | None = None,
    *,
    how: Sequence[str] = ("gzip",),
) -> str:
    """Write an image, and say the digest of its manifest. how: the layers' compressions, in turn."""
    place.mkdir(parents=True)
    tars = [tar(layer) for layer in layers]
    ids = ["sha256:" + hashlib.sha256(raw).hexdigest() for raw in tars]
    document = {
        "architecture": "amd64", "os": "linux", "config": config or {}, "rootfs": {"type": "layers", "diff_ids": ids},
    }  # fmt: skip
    blobs = [json.dumps(document).encode()]
    blobs += [compressed(raw, how[number % len(how)]) for number, raw in enumerate(tars)]
    described = []
    for number, blob in enumerate(blobs):
        name = hashlib.sha256(blob).hexdigest()
        (place / name).write_bytes(blob)
        kind = "image.rootfs.diff.tar.gzip" if number else "container.image.v1+json"
        described.append({"mediaType": f"application/vnd.docker.{kind}", "size": len(blob), "digest": f"sha256:{name}"})
    manifest = {"schemaVersion": 2, "mediaType": DOCKER_MANIFEST, "config": described[0], "layers": described[1:]}
    raw = json.dumps(manifest).encode()
    (place / "manifest.json").write_bytes(raw)
    (place / "version").write_text("Directory Transport Version: 1.1\n")
    return "sha256:" + hashlib.sha256(raw).hexdigest()


def stored(
    place: Path,
    layers: Sequence[Sequence[Member]],
    config: Mapping[str, object] | None = None,
    *,
    how: Sequence[str] = ("gzip",),
) -> Image:
    digest = write(place / "written", layers, config, how=how)
    return ImageStore(place / "store").take(place / "written", digest, "a test")
