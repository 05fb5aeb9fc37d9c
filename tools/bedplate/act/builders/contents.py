"""Files of a built image, as its topmost layer leaves them; read from its layers, without running anything of it."""

import hashlib
import json
import tarfile
from collections.abc import Callable
from pathlib import Path

from bedplate.model.faults import BedplateError

_WHITEOUT, _OPAQUE = ".wh.", ".wh..wh..opq"  # image-spec, layer.md: "Whiteouts"


def files_of(image: Path, wanted: Callable[[str], bool], *, largest_bytes: int) -> dict[str, bytes]:
    """Some files of an image in the layout that skopeo calls dir:, by their paths without a leading slash.

    Raises:
        BedplateError: a layer cannot be read, or such a file is larger than anything of its kind.
    """
    found: dict[str, bytes] = {}
    for layer in json.loads((image / "manifest.json").read_bytes())["layers"]:
        blob = image / str(layer["digest"]).removeprefix("sha256:")
        try:
            # tarfile takes an archive that was cut off for one that ends there.
            with blob.open("rb") as file:
                if f"sha256:{hashlib.file_digest(file, 'sha256').hexdigest()}" != layer["digest"]:
                    raise tarfile.ReadError("it does not have the bytes that its name says")
            with tarfile.open(blob, "r|*") as tar:  # gzip or nothing: what is published knows no other compression
                _lay_over(found, tar, wanted, largest_bytes)
        except (OSError, tarfile.TarError, EOFError) as fault:
            raise BedplateError(f"{blob}: this layer cannot be read: {fault} (build the image again)") from fault
    return found


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
