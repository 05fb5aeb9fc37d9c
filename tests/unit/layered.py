"""Layers of images with given files, and programs that build an image of one such layer."""

import gzip
import io
import json
import tarfile
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from bedplate.model.canonical import sha256
from unit.imagetools import Tools


def layer(files: dict[str, str], *, links: dict[str, str] | None = None, mtime_s: int = 0) -> bytes:
    raw_tar = io.BytesIO()
    with tarfile.open(fileobj=raw_tar, mode="w") as tar:
        for path, text in files.items():
            member = tarfile.TarInfo(path)
            member.size, member.mtime = len(text.encode()), mtime_s
            tar.addfile(member, io.BytesIO(text.encode()))
        for path, target in (links or {}).items():
            member = tarfile.TarInfo(path)
            member.type, member.linkname = tarfile.SYMTYPE, target
            tar.addfile(member)
    return gzip.compress(raw_tar.getvalue(), mtime=0)


def write_image(folder: Path, *layers: bytes) -> Path:
    folder.mkdir(exist_ok=True)
    for data in layers:
        (folder / sha256(data).removeprefix("sha256:")).write_bytes(data)
    (folder / "manifest.json").write_text(json.dumps({"layers": [{"digest": sha256(data)} for data in layers]}))
    return folder


@dataclass
class Watched:
    """What one step of a build was given, and what came of it."""

    files: set[str] = field(default_factory=set)
    image_id: str = ""


class Layered(Tools):
    """Builds an image of one layer with given files."""

    def __init__(self, files: dict[str, str]) -> None:
        super().__init__()
        self.files = files
        self.watched: dict[str, Watched] = {}

    def watch(self, step: str) -> Watched:
        return self.watched.setdefault(step, Watched())

    def calls_of(self, beginning: str) -> list[str]:
        return [call for call in self.calls if call.startswith(beginning)]

    def answer_to(self, words: tuple[str, ...]) -> Callable[[list[str], Mapping[str, str]], str]:
        if words[:2] == ("buildah", "pull"):
            return lambda *_: ""
        return super().answer_to(words[2:] if words[:2] == ("unshare", "--net") else words)

    def bud(self, words: list[str], env: object) -> str:
        said = super().bud(words, env)  # type: ignore[arg-type]
        step, context = words[words.index("--tag") + 1].rpartition(":")[2], Path(words[-1])
        if step in self.watched:
            every = {path for path in context.rglob("*") if path.is_file() or not any(path.iterdir())}
            self.watched[step].files = {path.relative_to(context).as_posix() for path in every}
            self.watched[step].image_id = self.last_id
        return said

    def convert(self, words: list[str], env: object) -> str:
        super().convert(words, env)  # type: ignore[arg-type]
        folder = Path(words[-1].removeprefix("dir:"))
        manifest = json.loads((folder / "manifest.json").read_text())
        write_image(folder, layer(self.files))
        layers = json.loads((folder / "manifest.json").read_text())["layers"]
        (folder / "manifest.json").write_text(json.dumps(manifest | {"layers": layers}))
        return ""
