"""Files of a built image, as its topmost layer leaves them; read from its layers, without running anything of it."""

import hashlib
import json
import tarfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from bedplate.decide.images.difference import Entry
from bedplate.model.faults import BedplateError

_WHITEOUT, _OPAQUE = ".wh.", ".wh..wh..opq"  # image-spec, layer.md: "Whiteouts"
_KINDS = {
    tarfile.REGTYPE: "file", tarfile.AREGTYPE: "file", tarfile.DIRTYPE: "directory", tarfile.SYMTYPE: "link",
    tarfile.LNKTYPE: "hard link", tarfile.CHRTYPE: "device", tarfile.BLKTYPE: "device", tarfile.FIFOTYPE: "pipe",
}  # fmt: skip


def files_of(image: Path, wanted: Callable[[str], bool], *, largest_bytes: int) -> dict[str, bytes]:
    """Some files of an image in the layout that skopeo calls dir:, by their paths without a leading slash.

    Raises:
        BedplateError: a layer cannot be read, or such a file is larger than anything of its kind.
    """
    found: dict[str, bytes] = {}
    for digest in layers_of(image):
        with _layer(image, digest) as tar:
            _lay_over(found, tar, wanted, largest_bytes)
    return found


def layers_of(image: Path) -> list[str]:
    """The digests of an image's layers, the base's first."""
    return [str(layer["digest"]) for layer in json.loads((image / "manifest.json").read_bytes())["layers"]]


def config_of(image: Path) -> dict[str, Any]:
    """The configuration of an image.

    Raises:
        BedplateError: it does not have the bytes that its name says.
    """
    digest = str(json.loads((image / "manifest.json").read_bytes())["config"]["digest"])
    data = (image / digest.removeprefix("sha256:")).read_bytes()
    if f"sha256:{hashlib.sha256(data).hexdigest()}" != digest:
        raise BedplateError(f"{image}: the configuration does not have the bytes that its name says (build it again)")
    config: dict[str, Any] = json.loads(data)
    return config


def entries_of(image: Path, layer: str) -> dict[str, Entry]:
    """Everything that one layer holds, by path.

    Raises:
        BedplateError: the layer cannot be read.
    """
    with _layer(image, layer) as tar:
        return {member.name.removeprefix("./").rstrip("/"): _entry(tar, member) for member in tar}


def _entry(tar: tarfile.TarFile, member: tarfile.TarInfo) -> Entry:
    data = tar.extractfile(member) if member.isreg() else None
    return Entry(
        kind=_KINDS.get(member.type, "other"),
        mode=member.mode,
        owner=f"{member.uid}:{member.gid}",
        mtime_s=int(member.mtime),
        size=member.size,
        sha256=hashlib.file_digest(data, "sha256").hexdigest() if data else "",  # type: ignore[arg-type]
        target=member.linkname,
    )


@contextmanager
def _layer(image: Path, digest: str) -> Iterator[tarfile.TarFile]:
    """A layer as an archive, once its bytes are known to be the right ones."""
    blob = image / digest.removeprefix("sha256:")
    try:
        # tarfile takes an archive that was cut off for one that ends there.
        with blob.open("rb") as file:
            if f"sha256:{hashlib.file_digest(file, 'sha256').hexdigest()}" != digest:
                raise tarfile.ReadError("it does not have the bytes that its name says")
        with tarfile.open(blob, "r|*") as tar:  # gzip or nothing: what is published knows no other compression
            yield tar
    except (OSError, tarfile.TarError, EOFError) as fault:
        raise BedplateError(f"{blob}: this layer cannot be read: {fault} (build the image again)") from fault


def _lay_over(found: dict[str, bytes], tar: tarfile.TarFile, wanted: Callable[[str], bool], largest_bytes: int) -> None:
    added: dict[str, bytes] = {}
    gone: list[str] = []
    for member in tar:
        path = member.name.removeprefix("./").lstrip("/")
        folder, _, name = path.rpartition("/")
        inside = f"{folder}/" if folder else ""
        if name == _OPAQUE:
            gone.append(inside)
        elif name.startswith(_WHITEOUT):
            gone += [inside + name.removeprefix(_WHITEOUT), f"{inside}{name.removeprefix(_WHITEOUT)}/"]
        elif not member.isdir():
            gone += [path, f"{path}/"]  # also where a directory was
        if member.isreg() and wanted(path):
            if member.size > largest_bytes:
                raise BedplateError(f"{path} of the built image has {member.size} bytes: no such file is this large")
            data = tar.extractfile(member)
            added[path] = data.read() if data else b""
        elif member.islnk() and wanted(path):
            same = member.linkname.removeprefix("./").lstrip("/")
            added[path] = added.get(same, found.get(same, b""))
    exact = {path for path in gone if not path.endswith("/")}
    folders = tuple(path for path in gone if path.endswith("/") or not path)
    for path in [path for path in found if path in exact or path.startswith(folders)]:
        del found[path]
    found |= added
