"""The file tree of an image, as its layers leave it, by the rules of the image specification (layer.md).

- A whiteout acts on the layers below it only, wherever it stands in its layer; one never becomes a file.
- A path is never followed: what would lie below a link or a file, or above the root, is a fault, not an escape.
- What lies in /dev is left out, as Enroot does: a container gets its devices from the node.
- Names of a hard link are one node: a layer above may take one of them, and the bytes stay with the other.

Example:
    tree = Tree()
    for number, entries in enumerate(layers):
        tree.lay(number, entries)
    tree.nodes["etc/passwd"].sha256
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum

from bedplate.model.faults import BadInput, Fault

WHITEOUT, OPAQUE = ".wh.", ".wh..wh..opq"
_AUFS = ".wh..wh."  # what AUFS left for itself; no files
OURS = -1  # the number of the layer that an importer adds
LATEST_S = 2**32 - 1  # squashfs counts seconds in 32 bits
_DIRECTORY_MODE = 0o755
# Squashfs knows user.*, trusted.*, security.*; trusted.overlay.* would be taken for overlayfs' own marks.
_KEPT_XATTRS = ("user.", "security.capability")
_DROPPED_XATTRS = ("security.selinux",)  # a label is the node's business


class Kind(StrEnum):
    FILE = "file"
    DIRECTORY = "directory"
    SYMLINK = "symlink"
    HARDLINK = "hard link"
    FIFO = "fifo"
    DEVICE = "device"


@dataclass(frozen=True, slots=True)  # half a million of them in a training image
class Entry:
    """A member of a layer, by its place in it. target: of a link; sha256, size: of a file."""

    position: int
    path: str
    kind: Kind
    mode: int = _DIRECTORY_MODE
    uid: int = 0
    gid: int = 0
    mtime: int = 0
    target: str = ""
    size: int = 0
    sha256: str = ""
    xattrs: Mapping[str, str] = field(default_factory=dict)


@dataclass(slots=True)
class Node:
    """What a path leads to; layer and position say where its bytes are."""

    kind: Kind
    mode: int
    uid: int
    gid: int
    mtime: int
    target: str
    size: int
    sha256: str
    xattrs: Mapping[str, str]
    layer: int
    position: int


class Tree:
    """Paths without a leading slash; "" is the root."""

    def __init__(self) -> None:
        self.nodes: dict[str, Node] = {"": _implied(0)}
        self._children: dict[str, set[str]] = {"": set()}

    def lay(self, layer: int, entries: Sequence[Entry], *, name: str = "") -> None:
        """Lay a layer over what is there. name: what messages call it.

        Raises:
            BadInput: every entry that cannot be laid there.
        """
        where = name or f"layer {layer + 1}"
        faults: list[Fault] = []
        clean = [(path, entry) for entry in entries if (path := _normal(entry, where, faults)) is not None]
        for path, _ in clean:
            self._take_away(path)
        for path, entry in clean:
            if not _is_mark(path) and not path.startswith("dev/"):
                faults += self._add(layer, path, entry, where)
        if faults:
            raise BadInput(faults)

    def _take_away(self, path: str) -> None:
        folder, _, name = path.rpartition("/")
        if name == OPAQUE:
            for child in list(self._children.get(folder, ())):
                self._remove(child)
        elif name.startswith(WHITEOUT) and not name.startswith(_AUFS):
            self._remove(f"{folder}/{name.removeprefix(WHITEOUT)}".lstrip("/"))

    def _add(self, layer: int, path: str, entry: Entry, where: str) -> Iterator[Fault]:
        if fault := self._unfit(path, entry, where):
            yield fault
            return
        self._make_folders(path, layer)
        if entry.kind is Kind.HARDLINK:
            target = _plain(entry.target)
            node = self.nodes.get(target or "")
            if node is None or node.kind is Kind.DIRECTORY:
                what = f'"{path}" is a hard link to "{entry.target}", which is not there'
                yield Fault(where, None, what, "the layer is damaged: build the image again")
                return
            if target == path:
                return
            self._remove(path)
        else:
            kept = {key: value for key, value in entry.xattrs.items() if key.startswith(_KEPT_XATTRS)}
            mtime = min(max(entry.mtime, 0), LATEST_S)
            node = Node(
                entry.kind, entry.mode & 0o7777, entry.uid, entry.gid, mtime, entry.target, entry.size, entry.sha256,
                kept, layer, entry.position,
            )  # fmt: skip
            if entry.kind is not Kind.DIRECTORY or path not in self._children:
                self._remove(path)
        self._put(path, node)

    def _unfit(self, path: str, entry: Entry, where: str) -> Fault | None:
        """What about an entry cannot be kept as it is."""
        if above := self.blocked(path):
            what = f'"{path}" lies below "{above}", which is a {self.nodes[above].kind}'
            return Fault(where, None, what, "have one of the layers name the real directory")
        if entry.kind is Kind.DEVICE:
            return Fault(where, None, f'"{path}" is a device', "only /dev has devices, and the node fills it")
        if odd := [key for key in entry.xattrs if not key.startswith((*_KEPT_XATTRS, *_DROPPED_XATTRS))]:
            return Fault(where, None, f'"{path}" has the attribute "{odd[0]}"', f"kept are {', '.join(_KEPT_XATTRS)}*")
        if "\n" in path or (entry.kind is Kind.SYMLINK and "\n" in entry.target):
            return Fault(where, None, f"{path!r} has a line break in its name or target", "rename it")
        return None

    def blocked(self, path: str) -> str | None:
        """What above a path is no directory, and so would have to be followed or replaced."""
        above = path
        while above := above.rpartition("/")[0]:
            if above in self.nodes and self.nodes[above].kind is not Kind.DIRECTORY:
                return above
        return None

    def _make_folders(self, path: str, layer: int) -> None:
        missing = []
        above = path.rpartition("/")[0]
        while above and above not in self.nodes:
            missing.append(above)
            above = above.rpartition("/")[0]
        for folder in reversed(missing):
            self._put(folder, _implied(layer))

    def _put(self, path: str, node: Node) -> None:
        self.nodes[path] = node
        if node.kind is Kind.DIRECTORY:
            self._children.setdefault(path, set())
        if path:
            self._children[path.rpartition("/")[0]].add(path)

    def _remove(self, path: str) -> None:
        if not path or path not in self.nodes:
            return
        pending = [path]
        while pending:
            each = pending.pop()
            pending += self._children.pop(each, ())
            del self.nodes[each]
        self._children[path.rpartition("/")[0]].discard(path)

    def names(self) -> dict[tuple[int, int], list[str]]:
        """The paths of each file, by the layer and place where its bytes are; more than one: hard links."""
        found: dict[tuple[int, int], list[str]] = {}
        for path in sorted(self.nodes):
            node = self.nodes[path]
            if node.kind is Kind.FILE:
                found.setdefault((node.layer, node.position), []).append(path)
        return found

    @property
    def latest_s(self) -> int:
        """The latest time in it: what bears no time of its own gets this."""
        return max(node.mtime for node in self.nodes.values())

    @property
    def size_bytes(self) -> int:
        """Of all files, each once."""
        return sum(self.nodes[paths[0]].size for paths in self.names().values())


def _implied(layer: int) -> Node:
    """A directory that no layer describes."""
    return Node(Kind.DIRECTORY, _DIRECTORY_MODE, 0, 0, 0, "", 0, "", {}, layer, -1)


def _is_mark(path: str) -> bool:
    """Names that begin with .wh. are reserved: whiteouts, and what AUFS left for itself."""
    return any(piece.startswith(WHITEOUT) for piece in path.split("/"))


def _plain(path: str) -> str | None:
    """A path as the tree has it; None: it leads out of the root."""
    pieces = [piece for piece in path.split("/") if piece not in {"", "."}]
    return None if ".." in pieces else "/".join(pieces)


def _normal(entry: Entry, where: str, faults: list[Fault]) -> str | None:
    path = _plain(entry.path)
    if path is None or (entry.kind is Kind.HARDLINK and _plain(entry.target) is None):
        what = f'"{entry.path}"' + (f' -> "{entry.target}"' if entry.kind is Kind.HARDLINK else "")
        faults.append(Fault(where, None, f"{what} leads out of the image", "do not use this image: ask who made it"))
        return None
    if not path and entry.kind is not Kind.DIRECTORY:
        faults.append(Fault(where, None, f"the root is a {entry.kind}", "do not use this image: ask who made it"))
        return None
    return path


def differences(tree: Tree, found: "Mapping[str, Found]", *, names: int = 5) -> list[str]:
    """What a file system holds otherwise than the tree: kinds, targets, sizes and bytes. Nothing: it is the tree.

    Modes and owners are not compared: Enroot makes what it unpacks readable, and everything root's.
    """
    said: list[str] = []
    for what, paths in (
        ("is missing", sorted(tree.nodes.keys() - found.keys())),
        ("is not of the image", sorted(found.keys() - tree.nodes.keys())),
        ("differs", sorted(path for path in tree.nodes.keys() & found.keys() if found[path].differs(tree.nodes[path]))),
    ):
        said += [f'"/{path}" {what}' for path in paths[:names]]
        said += [f"and {len(paths) - names} more"] if len(paths) > names else []
    return said


@dataclass(frozen=True)
class Found:
    """What was read back of one path."""

    kind: Kind
    size: int = 0
    sha256: str = ""
    target: str = ""

    def differs(self, node: Node) -> bool:
        if self.kind is not node.kind:
            return True
        if self.kind is Kind.FILE:
            return (self.size, self.sha256) != (node.size, node.sha256)
        return self.kind is Kind.SYMLINK and self.target != node.target
