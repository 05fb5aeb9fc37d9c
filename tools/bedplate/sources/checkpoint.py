"""A checkpoint on disk, looked at without torch: nothing in it is unpickled, run, followed out of it or changed.

Invariants:
- a name that a checkpoint says is opened only if it is a plain path below the checkpoint, and a regular file there;
- of a large file only the places that .metadata names are looked at, a few bytes each;
- whatever the bytes are, the answer is an Inspection: what is wrong stands in its faults.
"""

import hashlib
import io
import json
import os
import re
import stat
import struct
import zipfile
import zlib
from collections.abc import Iterator, Mapping
from pathlib import Path, PurePosixPath
from typing import Any

from bedplate.decide.checkpointcommon import PARALLEL, Common, plain
from bedplate.decide.checkpointmetadata import COMMON_STATE, Stored, read_metadata
from bedplate.decide.checkpointnames import foreign, transformer_engine
from bedplate.decide.checkpointpickle import Unreadable, read
from bedplate.decide.checkpointsafetensors import LARGEST_HEADER_BYTES, read_header
from bedplate.decide.checkpointtensors import disagreements, tensors
from bedplate.model.checkpoint import Entry, Inspection, Layout, Mark
from bedplate.model.faults import BadInput, Fault

TRACKER, LATEST, COMPLETE = "latest_checkpointed_iteration.txt", "latest-complete.json", "complete.json"
METADATA, CONFIG, COMMON, INTEGRITY = ".metadata", "metadata.json", "common.pt", "integrity.json"
LARGEST_PICKLE_BYTES = 512 * 1024 * 1024  # .metadata of 5,120 ranks is below 100 MB
LARGEST_OBJECT_BYTES = 512 * 1024 * 1024  # of what is no tensor; one is kilobytes, read whole
LARGEST_TEXT_BYTES = 16 * 1024 * 1024
SMALL_BYTES = 1024 * 1024  # files whose bytes are in the fingerprint
MOST_FAULTS_OF_A_KIND = 20
ZIP = b"PK\x03\x04"
_CONFIG_KEYS = {"sharded_backend", "sharded_backend_version", "common_backend", "common_backend_version"}
"""CheckpointingConfig of Megatron Core until 0.18, which is made of all that metadata.json says."""
_NUMBER = re.compile(r"(?:iter_|step-)(\d{1,18})")
_RANK = re.compile(r"mp_rank_(\d+)(?:_(\d+))?(?:_(\d+))?")
_BROKEN = (
    zipfile.BadZipFile, zlib.error, NotImplementedError, RuntimeError, EOFError, OSError, ValueError, KeyError,
    struct.error, OverflowError, MemoryError, IndexError,
)  # fmt: skip
AGAIN = "take another checkpoint, or copy this one again"


def inspect(path: Path, *, hashes: bool = False) -> Inspection:
    """Look at a checkpoint, or at a directory of checkpoints: then at the one that its record names.

    hashes: also read every file that integrity.json has a sha256 of.

    Raises:
        BadInput: there is nothing at the path, or it cannot be listed.
    """
    try:
        mode = path.stat().st_mode
    except (OSError, ValueError) as fault:
        why = fault.strerror if isinstance(fault, OSError) else "no path"
        raise BadInput(
            [Fault(str(path), None, f"cannot be looked at: {why}", "name the checkpoint's directory")]
        ) from None
    if stat.S_ISREG(mode):
        found = _Found(path.parent, only=path.name)
    elif stat.S_ISDIR(mode):
        chosen, faults = _chosen(path)
        if chosen is None:
            return Inspection(str(path), faults=tuple(faults))
        found = _Found(chosen)
        found.faults += faults
    else:
        raise BadInput([Fault(str(path), None, "neither a directory nor a file", "name the checkpoint's directory")])
    found.look(hashes=hashes)
    return found.inspection(path if found.only else found.root)


def member_bytes(path: Path, offset: int, length: int, member: str) -> tuple[bytes, dict[str, bytes]]:
    """Of an object inside a shard file: one member of its archive, and all others by their names in the archive.

    Raises:
        Unreadable: there is no such archive there.
    """
    with path.open("rb") as file:
        file.seek(offset)
        data = file.read(min(length, LARGEST_OBJECT_BYTES + 1))
    if len(data) != length:
        raise Unreadable(f"{len(data)} bytes where {length} should be")
    try:
        with zipfile.ZipFile(io.BytesIO(data)) as archive:
            if sum(info.file_size for info in archive.infolist()) > 2 * LARGEST_OBJECT_BYTES:
                raise Unreadable("larger inside than any object of a checkpoint")
            members = {info.filename: archive.read(info) for info in archive.infolist()}
    except _BROKEN as fault:
        raise Unreadable(_why(fault)) from None
    wanted = [name for name in members if name.endswith(f"/{member}")]
    if len(wanted) != 1:
        raise Unreadable(f"{len(wanted)} members {member}, where there is one")
    return members.pop(wanted[0]), members


class _Found:
    """What is known so far of one checkpoint."""

    def __init__(self, root: Path, only: str | None = None) -> None:
        self.root, self.only = root, only
        self.faults: list[Fault] = []
        self.entries: list[Entry] = []
        self.marks: set[Mark] = set()
        self.names: set[str] = set()
        self.layout = Layout.UNKNOWN
        self.iteration: int | None = None
        self.written_by: dict[str, str] = {}
        self.parallel: dict[str, str] = {}
        self.sizes: dict[str, int] = {}
        self.stored: list[Stored] = []
        self._told: dict[str, int] = {}

    def look(self, *, hashes: bool) -> None:
        self._list()
        if METADATA in self.sizes:
            self._distributed()
        elif any(name.endswith(".distcp") for name in self.sizes):
            self.layout = Layout.TORCH_DIST if CONFIG in self.sizes else Layout.TORCH_DCP
            self._tell(METADATA, "is not there, and shards are: the save never ended", AGAIN)
        elif any(_RANK.match(PurePosixPath(name).parts[0]) for name in self.sizes) or any(
            name.endswith((".pt", ".pth")) for name in self.sizes
        ):
            self._legacy()
        elif any(name.endswith(".safetensors") for name in self.sizes):
            self._safetensors()
        else:
            self._tell("", "no checkpoint of a known layout", "name the directory that holds .metadata or mp_rank_00")
        self._records(hashes=hashes)
        if not self.entries and not self.faults:
            self._tell("", "no keys: there is nothing in it", AGAIN)

    def inspection(self, path: Path) -> Inspection:
        strange = foreign(self.names)
        if strange:
            self.marks.add(Mark.FOREIGN)
            self._tell("", f"its pickles name what no known writer names: {', '.join(strange[:10])}",
                       "find out who wrote it before any program loads it: to load it is to run that")  # fmt: skip
        return Inspection(
            str(path), self.layout, self.iteration, dict(self.written_by), dict(self.parallel), frozenset(self.marks),
            tuple(sorted(self.names)), strange, tuple(self.entries), len(self.sizes), sum(self.sizes.values()),
            self._fingerprint(), tuple(self.faults),
        )  # fmt: skip

    # --- the files

    def _list(self) -> None:
        for folder, folders, files in os.walk(self.root, onerror=self._unlisted):
            if self.only is not None:
                folders.clear()
            folders.sort()
            for name in sorted(files + [n for n in folders if Path(folder, n).is_symlink()]):
                path = Path(folder, name)
                shown = path.relative_to(self.root).as_posix()
                if self.only is not None and shown != self.only:
                    continue
                try:
                    known = path.lstat() if self.only is None else path.stat()
                except OSError as fault:
                    self._tell(shown, f"cannot be looked at: {fault.strerror}", AGAIN)
                    continue
                if stat.S_ISLNK(known.st_mode):
                    self._tell(shown, "is a symbolic link: what it leads to is not looked at", "put the file there")
                elif stat.S_ISREG(known.st_mode):
                    self.sizes[shown] = known.st_size
                else:
                    self._tell(shown, "is no regular file", "remove it")

    def _unlisted(self, fault: OSError) -> None:
        self._tell(str(fault.filename), f"cannot be listed: {fault.strerror}", "let this user read it")

    def _open(self, name: str) -> io.BufferedReader:
        """Open a file of the list; what was exchanged since for a link or a pipe is not opened."""
        handle = os.open(
            self.root / name, os.O_RDONLY | os.O_NOFOLLOW * (self.only is None) | os.O_NONBLOCK | os.O_CLOEXEC
        )
        return os.fdopen(handle, "rb")

    def _bytes(self, name: str, limit: int) -> bytes | None:
        """All of a file; None, and told, where it is larger than the limit or cannot be read."""
        try:
            with self._open(name) as file:
                data = file.read(limit + 1)
        except OSError as fault:
            self._tell(name, f"cannot be read: {fault.strerror}", "let this user read it")
            return None
        if len(data) > limit:
            self._tell(name, f"is larger than {limit} bytes: no such file of a checkpoint is", AGAIN)
            return None
        return data

    def _json(self, name: str) -> dict[str, Any] | None:
        data = self._bytes(name, LARGEST_TEXT_BYTES)
        if data is None:
            return None
        try:
            document = json.loads(data.decode())
        except (ValueError, RecursionError) as fault:
            self._tell(name, f"no JSON: {str(fault)[:200]}", AGAIN)
            return None
        if not isinstance(document, dict):
            self._tell(name, "no JSON object", AGAIN)
            return None
        return document

    # --- layouts

    def _configuration(self, config: Mapping[str, Any]) -> None:
        backend = config.get("sharded_backend")
        if backend != "torch_dist":
            self.layout = Layout.UNKNOWN
            self._tell(CONFIG, f"sharded_backend is {str(backend)[:50]!r}: only torch_dist is known", "")
        if "common_backend" in config:
            self.written_by["metadata.json"] = "as Megatron Core 0.18 and earlier write it"
        elif backend == "torch_dist":
            self.written_by["metadata.json"] = "as Megatron Core 0.19 writes it"
        if config.keys() - _CONFIG_KEYS:
            self.marks.add(Mark.CONFIG_KEYS)
        if any(config.get(name, 1) != 1 for name in ("sharded_backend_version", "common_backend_version")):
            self.marks.add(Mark.CONFIG_VERSION)

    def _distributed(self) -> None:
        config = self._json(CONFIG) if CONFIG in self.sizes else None
        self.layout = Layout.TORCH_DCP if CONFIG not in self.sizes else Layout.TORCH_DIST
        if config is not None:
            self._configuration(config)
        data = self._bytes(METADATA, LARGEST_PICKLE_BYTES)
        if data is None:
            return
        try:
            said = read_metadata(data)
        except Unreadable as fault:
            self._tell(METADATA, str(fault), AGAIN)
            return
        self.entries += said.entries
        self.names |= said.names
        self.stored = list(said.stored)
        for wrong in said.wrong:
            self._tell(METADATA, wrong, AGAIN, kind="metadata")
        if any(name.endswith(".StorageMeta") for name in said.names):
            self.marks.add(Mark.STORAGE_META)
        keys = {entry.key for entry in said.entries}
        if any(key.startswith(("optimizer", "chained_")) for key in keys):
            self.marks.add(Mark.OPTIMIZER)
        if layers := transformer_engine(keys):
            self.written_by["layers"] = layers
        self._shards()
        self._objects()
        self._common(keys)

    def _shards(self) -> None:
        """Does every file hold the bytes that .metadata says it holds, and no others?"""
        places: dict[str, list[Stored]] = {}
        for place in self.stored:
            places.setdefault(place.path, []).append(place)
        for name, held in places.items():
            if not _inside(name):
                self._tell(METADATA, f"names the file {name[:200]!r}, no path inside the checkpoint: not opened",
                           "find out who wrote it", kind="paths")  # fmt: skip
            elif name not in self.sizes:
                self._tell(
                    name, f"is not there, and holds {len(held)} shards ({held[0].key[:100]!r})", AGAIN, kind="gone"
                )
            else:
                self._shard(name, sorted(held, key=lambda place: (place.offset, place.length)))
        for name, size in self.sizes.items():
            if name.endswith(".distcp") and name not in places and size:
                self._tell(name, "is not in .metadata: it is of another save", "remove it, or copy again", kind="spare")

    def _shard(self, name: str, held: list[Stored]) -> None:
        size, end = self.sizes[name], 0
        for place in held:
            if place.offset < end:
                self._tell(METADATA, f"{place.key[:100]!r} lies over the shard before it in {name}", AGAIN, kind="over")
            end = max(end, place.offset + place.length)
        if size != end:
            less = "was cut off" if size < end else "is larger than what was saved"
            self._tell(name, f"has {size} bytes, .metadata says {end}: it {less}", AGAIN, kind="size")
        try:
            with self._open(name) as file:
                wrong = [place for place in held if place.length and not self._begins(file, place)]
        except OSError as fault:
            self._tell(name, f"cannot be read: {fault.strerror}", "let this user read it")
            return
        if wrong:
            self._tell(name, f"at {wrong[0].offset}, where {wrong[0].key[:100]!r} should begin, is no archive of torch"
                       f" ({len(wrong)} of {len(held)} shards)", AGAIN, kind="bytes")  # fmt: skip

    @staticmethod
    def _begins(file: io.BufferedReader, place: Stored) -> bool:
        file.seek(place.offset)
        return file.read(len(ZIP)) == ZIP

    def _objects(self) -> None:
        """Every object that is no tensor: is it whole, and what does it name?"""
        objects = {entry.key for entry in self.entries if entry.kind == "object"}
        for place in self.stored:
            if place.key not in objects or not _inside(place.path):
                continue
            if place.offset + place.length > self.sizes.get(place.path, 0):
                continue  # told already
            self._object(place)

    def _object(self, place: Stored) -> None:
        try:
            data, _ = member_bytes(self.root / place.path, place.offset, place.length, "data.pkl")
            value, names = read(data)
        except (Unreadable, OSError) as fault:
            self._tell(place.path, f"{place.key[:100]!r} cannot be read: {str(fault)[:300]}", AGAIN, kind="objects")
            return
        self.names |= names
        if place.key == COMMON_STATE:
            self._common_state(data, place.path)
        elif place.key == "iteration" and isinstance(value, int):
            self.iteration = value
        elif place.key == "args":
            said = dict(plain(value))
            self.parallel |= {ours: said[name] for name, ours in PARALLEL.items() if name in said}
            if self.layout is Layout.TORCH_DCP and said.get("ckpt_format") == "fsdp_dtensor":
                self.layout = Layout.FSDP_DTENSOR

    def _common(self, keys: set[str]) -> None:
        if COMMON_STATE in keys:
            self.marks.add(Mark.COMMON_STATE)
        if COMMON in self.sizes:
            self.marks.add(Mark.COMMON_FILE)
            archive = self._archive(COMMON)
            if archive is not None:
                self._common_state(archive[0], COMMON)
        if self.layout is not Layout.TORCH_DIST:
            return
        match COMMON_STATE in keys, COMMON in self.sizes:
            case True, False:
                self.written_by["Megatron Core"] = "0.19 or later (common_state among the shards)"
            case False, True:
                self.written_by["Megatron Core"] = "0.18 or earlier, or converted to its layout (common.pt)"
            case True, True:
                self.written_by["Megatron Core"] = "0.19 or later, with a common.pt made for earlier ones"
            case _:
                self._tell("", "neither common.pt nor the key common_state: the save never ended", AGAIN)

    def _common_state(self, data: bytes, where: str) -> None:
        try:
            common = Common(data)
        except Unreadable as fault:
            self._tell(where, f"the common state cannot be read: {fault}", AGAIN)
            return
        self.names |= common.names
        self.iteration = common.iteration if common.iteration is not None else self.iteration
        self.parallel |= common.parallel
        self.written_by |= common.versions
        if common.content is not None:
            self.marks.add(Mark.CONTENT_METADATA)
            self.written_by |= {f"content {name}": value for name, value in common.content.items()}
            if common.content.get("distrib_optim_sharding_type") == "fully_sharded_model_space":
                self.marks.add(Mark.FLATTENED)

    def _archive(self, name: str) -> tuple[bytes, dict[str, int]] | None:
        """data.pkl of a file that torch.save wrote, and the sizes of its storages; told where it is none."""
        try:
            with self._open(name) as file, zipfile.ZipFile(file) as archive:
                pickles = [info for info in archive.infolist() if info.filename.endswith("/data.pkl")]
                if len(pickles) != 1:
                    raise Unreadable(f"{len(pickles)} members data.pkl, where there is one")
                with archive.open(pickles[0]) as member:
                    data = member.read(LARGEST_PICKLE_BYTES + 1)
                if len(data) > LARGEST_PICKLE_BYTES:
                    raise Unreadable("data.pkl is larger than any of a checkpoint")
                folder = pickles[0].filename.removesuffix("data.pkl") + "data/"
                sizes = {
                    info.filename.removeprefix(folder): info.file_size
                    for info in archive.infolist()
                    if info.filename.startswith(folder)
                }
        except _BROKEN as fault:
            self._tell(name, f"no whole file of torch.save: {_why(fault)}", AGAIN, kind="archives")
            return None
        return data, sizes

    def _legacy(self) -> None:
        self.layout = Layout.LEGACY
        ranks = [found for name in self.sizes if (found := _RANK.match(PurePosixPath(name).parts[0]))]
        if ranks:
            self.parallel["tensor"] = str(1 + max(int(rank[1]) for rank in ranks))
            self.parallel["pipeline"] = str(1 + max(int(rank[2] or 0) for rank in ranks))
        for name in sorted(self.sizes):
            if not name.endswith((".pt", ".pth")):
                continue
            archive = self._archive(name)
            if archive is None:
                continue
            data, sizes = archive
            try:
                value, names = read(data)
                common = Common(data)
            except Unreadable as fault:
                self._tell(name, str(fault), AGAIN, kind="pickles")
                continue
            self.names |= names
            self.iteration = common.iteration if common.iteration is not None else self.iteration
            self.parallel |= common.parallel
            self.written_by |= common.versions
            where = name.rpartition("/")[0]
            for held in tensors(value):
                key = f"{where}:{held.entry.key}" if where else held.entry.key
                self.entries.append(Entry(key, "tensor", held.entry.shape, held.entry.dtype, held.entry.size_bytes))
                for wrong in disagreements(held, sizes):
                    self._tell(name, wrong, AGAIN, kind="tensors")

    def _safetensors(self) -> None:
        self.layout = Layout.SAFETENSORS
        for name in sorted(n for n in self.sizes if n.endswith(".safetensors")):
            try:
                with self._open(name) as file:
                    head = file.read(8)
                    length = int.from_bytes(head, "little") if len(head) == 8 else LARGEST_HEADER_BYTES + 1  # noqa: PLR2004
                    header = b"" if length > LARGEST_HEADER_BYTES else file.read(length)
                if len(header) != length:
                    raise Unreadable("no header of safetensors")  # noqa: TRY301
                entries, end, wrong = read_header(header)
            except (Unreadable, OSError) as fault:
                self._tell(name, str(fault), AGAIN)
                continue
            self.entries += entries
            for said in wrong:
                self._tell(name, said, AGAIN, kind="tensors")
            if self.sizes[name] != 8 + length + end:
                self._tell(name, f"has {self.sizes[name]} bytes, its header says {8 + length + end}", AGAIN)
        for name in [n for n in self.sizes if n.endswith(".safetensors.index.json")]:
            index = self._json(name)
            files = index.get("weight_map") if index else None
            keys = {entry.key for entry in self.entries}
            for key, file in files.items() if isinstance(files, dict) else ():
                if key not in keys:
                    self._tell(name, f"{key[:100]!r}, in {str(file)[:100]!r}, is not there", AGAIN, kind="index")

    # --- records beside and around it

    def _records(self, *, hashes: bool) -> None:
        number = _NUMBER.fullmatch(self.root.name)
        if self.iteration is None and number:
            self.iteration = int(number[1])
        if COMPLETE in self.sizes:
            self._complete()
        elif self.root.name.startswith("step-") and self.only is None:
            self._tell(COMPLETE, "is not there: the training program writes it last, so the save never ended", AGAIN)
        tracker = self.root.parent / TRACKER
        if number and self.root.name.startswith("iter_") and tracker.is_file():
            named = _tracked(tracker)
            if named is not None and named.isdigit() and int(named) < int(number[1]):
                found = f"names iteration {int(named)}, this one is {int(number[1])}: its save never ended"
                self.faults.append(Fault(str(tracker), None, found, AGAIN))
        if hashes and INTEGRITY in self.sizes:
            self._integrity()

    def _complete(self) -> None:
        record = self._json(COMPLETE)
        if record is None:
            return
        files, step, layout = record.get("files"), record.get("step"), record.get("layout")
        if not isinstance(files, dict) or not files or not isinstance(step, int):
            self._tell(COMPLETE, "has no step or no files", AGAIN)
            return
        if self.iteration is None:
            self.iteration = step
        self.written_by["training program"] = f"configuration {str(record.get('configuration'))[:19]}"
        if isinstance(layout, dict):
            stages = layout.get("stages")
            self.parallel |= {
                name: str(value)[:50]
                for name, value in (
                    ("tensor", layout.get("tensor")), ("pipeline", len(stages) if isinstance(stages, list) else None),
                    ("data", layout.get("replicas")),
                )
                if value is not None
            }  # fmt: skip
        for name, size in files.items():
            if self.sizes.get(name) != size:
                has = f"has {self.sizes[name]} bytes" if name in self.sizes else "is not there"
                self._tell(name, f"{has}, {COMPLETE} says {str(size)[:30]} bytes", AGAIN, kind="complete")

    def _integrity(self) -> None:
        said = self._json(INTEGRITY)
        files = said.get("files") if said else None
        if not isinstance(files, dict) or (said or {}).get("algorithm") != "sha256":
            self._tell(INTEGRITY, "no sha256 of files", AGAIN)
            return
        for name, wanted in files.items():
            if not _inside(name) or name not in self.sizes:
                self._tell(INTEGRITY, f"{name[:200]!r} is not there", AGAIN, kind="hashes")
                continue
            with self._open(name) as file:
                if hashlib.file_digest(file, "sha256").hexdigest() != wanted:
                    self._tell(name, f"does not have the sha256 that {INTEGRITY} says", AGAIN, kind="hashes")

    def _fingerprint(self) -> str | None:
        if not self.sizes:
            return None
        found = hashlib.sha256()
        for name, size in sorted(self.sizes.items()):
            found.update(f"{len(name.encode('utf-8', 'surrogateescape'))} ".encode())
            found.update(name.encode("utf-8", "surrogateescape") + f" {size}\n".encode())
            if size <= SMALL_BYTES or name in {METADATA, COMMON}:
                try:
                    with self._open(name) as file:
                        found.update(hashlib.file_digest(file, "sha256").digest())
                except OSError:
                    return None
        return f"sha256:{found.hexdigest()}"

    def _tell(self, name: str, found: str, remedy: str, *, kind: str | None = None) -> None:
        """A fault, in a form that a terminal and JSON bear; of one kind the first ones, then how many more."""
        where = str(self.root / name) if name else str(self.root)
        if kind is not None:
            self._told[kind] = self._told.get(kind, 0) + 1
            if self._told[kind] > MOST_FAULTS_OF_A_KIND:
                return
            if self._told[kind] == MOST_FAULTS_OF_A_KIND:
                found += " (more of this kind are not told)"
        self.faults.append(Fault(_printable(where), None, _printable(found), remedy))


def _chosen(path: Path) -> tuple[Path | None, list[Fault]]:
    """The checkpoint that a directory of checkpoints names as its latest; the directory itself where it is one."""
    if (path / METADATA).exists():
        return path, []
    if (path / LATEST).is_file():
        record, named = path / LATEST, _latest(path / LATEST)
    elif (path / TRACKER).is_file():
        record, said = path / TRACKER, _tracked(path / TRACKER)
        named = None if said is None else f"iter_{int(said):07d}" if said.isdigit() else said
    else:
        return path, []
    if named is None or not _inside(named) or "/" in named:
        return None, [Fault(str(record), None, "names no checkpoint", "name one yourself, or write the record again")]
    if not (path / named).is_dir() or (path / named).is_symlink():
        return None, [Fault(str(record), None, f"names {_printable(named)}, which is not there",
                            "name another checkpoint, or correct the record")]  # fmt: skip
    return path / named, []


def _tracked(path: Path) -> str | None:
    """What latest_checkpointed_iteration.txt says: a number, or `release`."""
    try:
        with path.open("rb") as file:
            said = file.read(64).decode().strip()
    except (OSError, ValueError):
        return None
    return said if re.fullmatch(r"[0-9]{1,18}|release", said) else None


def _latest(path: Path) -> str | None:
    try:
        with path.open("rb") as file:
            said = json.loads(file.read(SMALL_BYTES).decode())
    except (OSError, ValueError, RecursionError):
        return None
    named = said.get("checkpoint") if isinstance(said, dict) else None
    return named if isinstance(named, str) and named else None


def _inside(name: str) -> bool:
    """Is it a plain path below the directory: no `..`, not absolute, nothing that is no name?"""
    parts = name.split("/")
    return "\x00" not in name and "\\" not in name and not any(part in {"", ".", ".."} for part in parts)


def _why(fault: BaseException) -> str:
    return _printable(str(fault)[:200]) or type(fault).__name__


def _printable(text: str) -> str:
    return "".join(letter if letter.isprintable() else "?" for letter in text)


def files_of(root: Path) -> Iterator[Path]:
    """The regular files below a directory, links left out."""
    for folder, _, files in os.walk(root):
        yield from (path for name in sorted(files) if (path := Path(folder, name)).is_file() and not path.is_symlink())
