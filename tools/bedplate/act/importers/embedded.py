"""The importer for machines without Enroot: layers to mksquashfs, without a tree on the disk.

What the layers amount to is computed first; then each layer is read once more, and the files that are left of it
go as one tar stream into mksquashfs. So nothing is unpacked: no root is needed, no path can lead out of anywhere,
and a layer's time stamps (a .pyc is only believed with its source's) stay as they are. The same image gives the
same bytes: times come from the layers, and what has none gets the latest of them. Everything is root's, as in what
Enroot makes: a job's user is root in its own container, and nobody else is known there.
"""

import io
import os
import tarfile
from collections.abc import Sequence
from pathlib import Path
from typing import IO, BinaryIO, ClassVar, cast

from bedplate.act.importers.importer import (
    IMPORT_TIMEOUT_S,
    Made,
    Work,
    check_squashfs_tools,
    mksquashfs_version,
)
from bedplate.decide.images import enrootfiles
from bedplate.decide.images.rootfs import OURS, Entry, Kind, Node, Tree
from bedplate.model.canonical import sha256
from bedplate.process import streaming
from bedplate.sources import layers
from bedplate.sources.commit import EPOCH_S
from bedplate.sources.imagestore import Image

_TYPES = {Kind.DIRECTORY: tarfile.DIRTYPE, Kind.SYMLINK: tarfile.SYMTYPE, Kind.FIFO: tarfile.FIFOTYPE}


class Embedded:
    name: ClassVar[str] = "embedded"
    needs: ClassVar[float] = 1.5  # the squashfs alone, where gzip compressed better than zstd
    own: ClassVar[frozenset[str]] = frozenset()

    def check(self) -> None:
        check_squashfs_tools()

    def make(self, work: Work) -> Made:
        command = mksquashfs(work.output, work.tree.nodes[""].mode, work.options)
        # Options for times would stamp every file; this only cuts off what is later, which nothing is but the root.
        env = {**os.environ, "SOURCE_DATE_EPOCH": str(work.tree.latest_s)}
        with streaming(command, feeds=True, timeout_s=IMPORT_TIMEOUT_S, env=env, log=work.log) as pipe:
            _feed(pipe, work)
        with work.log.open("a") as log:
            log.write(f"{len(work.tree.nodes)} paths\n")
        uri = f"docker://{work.repository}@{work.image.manifest.digest}"
        return Made(f"embedded, mksquashfs {mksquashfs_version()}", f"{work.options} -all-root", uri)


def mksquashfs(output: Path, root_mode: int, options: str) -> list[str]:
    return ["mksquashfs", "-", str(output), "-tar", *options.split(), "-all-root", "-root-mode",
            f"{root_mode:o}", "-noappend", "-no-progress", "-quiet"]  # fmt: skip


def tree_of(image: Image) -> Tree:
    """What an image's layers amount to, with the files by which Enroot starts it.

    Raises:
        Refused, BadInput: a layer is damaged, or has what cannot be kept.
    """
    tree = Tree()
    for number, (path, diff_id) in enumerate(image.layers):
        tree.lay(number, layers.entries(path, diff_id), name=f"layer {number + 1} ({path.name[:12]})")
    tree.lay(OURS, list(_ours(image)), name="what Enroot needs")
    place = enrootfiles.work_directory(image.config)
    if place and place not in tree.nodes and not tree.blocked(place):
        tree.lay(OURS, [Entry(-1, place, Kind.DIRECTORY, mtime=EPOCH_S)], name="the working directory")
    return tree


def _ours(image: Image) -> Sequence[Entry]:
    return [
        Entry(position, path, Kind.FILE, 0o644, 0, 0, EPOCH_S, size=len(text.encode()), sha256=sha256(text.encode()))
        for position, (path, text) in enumerate(enrootfiles.files(image.config).items())
    ]


def _feed(pipe: BinaryIO, work: Work) -> None:
    tree, names = work.tree, work.tree.names()
    with tarfile.open(fileobj=cast("IO[bytes]", pipe), mode="w|", format=tarfile.PAX_FORMAT) as tar:
        # Directories first: what mksquashfs has to make up on its way gets the time of day.
        for kinds in ({Kind.DIRECTORY}, {Kind.SYMLINK, Kind.FIFO}):
            for path in sorted(path for path, node in tree.nodes.items() if node.kind in kinds and path):
                tar.addfile(_member(path, tree.nodes[path]))
        for position, text in enumerate(enrootfiles.files(work.image.config).values()):
            _add(tar, tree, names.get((OURS, position), []), io.BytesIO(text.encode()))
        for number, (blob, _) in enumerate(work.image.layers):
            with layers.members(blob) as members:
                for position, _, data in members:
                    if data is not None:
                        _add(tar, tree, names.get((number, position), []), data)


def _add(tar: tarfile.TarFile, tree: Tree, paths: list[str], data: IO[bytes]) -> None:
    if not paths:
        return
    tar.addfile(_member(paths[0], tree.nodes[paths[0]]), data)
    for path in paths[1:]:
        link = tarfile.TarInfo(path)
        link.type, link.linkname = tarfile.LNKTYPE, paths[0]
        tar.addfile(link)


def _member(path: str, node: Node) -> tarfile.TarInfo:
    member = tarfile.TarInfo(path)
    member.type = _TYPES.get(node.kind, tarfile.REGTYPE)
    member.mode, member.uid, member.gid, member.mtime = node.mode, node.uid, node.gid, node.mtime
    member.size, member.linkname = node.size, node.target
    member.pax_headers = {f"SCHILY.xattr.{key}": value for key, value in node.xattrs.items()}
    return member
