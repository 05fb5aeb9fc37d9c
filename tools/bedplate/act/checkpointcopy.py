"""A copy of a checkpoint in an older layout of Megatron's.

Invariants:
- the checkpoint itself is never written to, and nothing of it is loaded or run;
- a copy has its name only when it is whole, and was looked at as any other checkpoint.
"""

import hashlib
import json
import os
import shutil
import tempfile
import zipfile
from collections.abc import Iterator
from pathlib import Path

from bedplate.decide.checkpointcommon import common_file
from bedplate.decide.checkpointmetadata import COMMON_STATE, read_metadata, without_common_state
from bedplate.decide.checkpointpickle import Unreadable
from bedplate.model.checkpoint import Inspection, Layout, Mark
from bedplate.model.faults import BadInput, BedplateError, Fault
from bedplate.sources.checkpoint import COMMON, COMPLETE, CONFIG, INTEGRITY, METADATA, files_of, inspect, member_bytes
from bedplate.sources.files import sync_directory

TARGETS = ("0.14", "0.15", "0.16", "0.17", "0.18")
"""The releases of Megatron Core that read the layout with a common.pt, and no other."""
LEGACY_CONFIG = {
    "sharded_backend": "torch_dist", "sharded_backend_version": 1, "common_backend": "torch",
    "common_backend_version": 1,
}  # fmt: skip
"""metadata.json as Megatron Core 0.18.2 writes it."""


def convert(path: Path, to: str, out: Path, *, copy: bool = False) -> Inspection:
    """Make a copy of a checkpoint of Megatron Core 0.19 that 0.18 and earlier read; what was made, inspected.

    Shards are hard links where the file system allows it, unless copy; nothing of the original is written to.

    Raises:
        BadInput: the checkpoint is not whole, is of another layout, or the copy's place is taken.
        BedplateError: it could not be written.
    """
    found = inspect(path.absolute())
    root, out = Path(found.path), out.absolute()
    faults = list(_not_convertible(found, to, out))
    if faults:
        raise BadInput(faults)
    work = Path(tempfile.mkdtemp(prefix=f".{out.name[:100]}.", dir=out.parent))
    try:
        work.chmod(0o755)
        _write_copy(root, work, copy=copy)
        _refuse_other(found, inspect(work), out)
        work.rename(out)
        sync_directory(out.parent)
    except Unreadable as fault:
        raise BadInput(
            [Fault(str(root), None, str(fault), "convert it inside an image of Megatron Core 0.19")]
        ) from fault
    except OSError as fault:
        raise BedplateError(f"{out}: cannot be written: {fault.strerror}: {fault.filename}") from fault
    finally:
        if work.exists():
            shutil.rmtree(work)
    return inspect(out)


def _not_convertible(found: Inspection, to: str, out: Path) -> Iterator[Fault]:
    """Why there cannot be such a copy there."""
    if to not in TARGETS:
        what = f"{to} is none of {', '.join(TARGETS)}: how to convert to another layout is not known"
        yield Fault("--to", None, what, "write --to 0.18")
    yield from found.faults
    if not found.faults and (found.layout is not Layout.TORCH_DIST or Mark.COMMON_STATE not in found.marks):
        what = f"a {found.layout} checkpoint without the key common_state: it needs no such conversion"
        yield Fault(found.path, None, what, "ask: bedplate checkpoint readable PATH ENV")
    if out.is_relative_to(Path(found.path)):
        yield Fault(str(out), None, "lies inside the checkpoint", "name a place beside it")
    elif out.exists() or out.is_symlink():
        yield Fault(str(out), None, "is there already", "name a place that is not there yet")
    elif not out.parent.is_dir():
        yield Fault(str(out.parent), None, "no such directory", "make it, or name another place")


def _refuse_other(found: Inspection, made: Inspection, out: Path) -> None:
    """The copy is whole, in the older layout, and has every key.

    Raises:
        BedplateError: it is not what it should be.
    """
    if not made.whole or Mark.COMMON_FILE not in made.marks or Mark.COMMON_STATE in made.marks:
        raise BedplateError(f"{out}: the copy is not what it should be: {'; '.join(map(str, made.faults))}")
    if {*found.entries} - {*made.entries} != {entry for entry in found.entries if entry.key == COMMON_STATE}:
        raise BedplateError(f"{out}: the copy has other keys than the checkpoint; nothing was made")


def _write_copy(root: Path, work: Path, *, copy: bool) -> None:
    data = (root / METADATA).read_bytes()
    place = next(place for place in read_metadata(data).stored if place.key == COMMON_STATE)
    pickled, others = member_bytes(root / place.path, place.offset, place.length, "data.pkl")
    folder = next(iter(others)).partition("/")[0]
    ours = {METADATA, CONFIG, COMMON, INTEGRITY, COMPLETE}
    for file in files_of(root):
        target = work / file.relative_to(root)
        if str(file.relative_to(root)) not in ours:
            target.parent.mkdir(parents=True, exist_ok=True)
            _linked(file, target, copy=copy)
    with zipfile.ZipFile(work / COMMON, "w", zipfile.ZIP_STORED) as archive:
        archive.writestr(f"{folder}/data.pkl", common_file(pickled))
        for name, member in others.items():
            archive.writestr(name, member)
    (work / METADATA).write_bytes(without_common_state(data))
    (work / CONFIG).write_text(json.dumps(LEGACY_CONFIG), encoding="utf-8")
    if (root / INTEGRITY).is_file():  # a reader that asks for it refuses a checkpoint without
        manifest = json.loads((root / INTEGRITY).read_text(encoding="utf-8"))
        manifest["files"] |= {
            name: hashlib.sha256((work / name).read_bytes()).hexdigest() for name in (COMMON, METADATA, CONFIG)
        }
        manifest["files"].pop(COMPLETE, None)
        (work / INTEGRITY).write_text(json.dumps(manifest, indent=2), encoding="utf-8")
    if (root / COMPLETE).is_file():
        record = json.loads((root / COMPLETE).read_text(encoding="utf-8"))
        files = [file for file in files_of(work) if file.name != COMPLETE]
        record["files"] = {str(file.relative_to(work)): file.stat().st_size for file in files}
        (work / COMPLETE).write_text(json.dumps(record, indent=2, sort_keys=True) + "\n", encoding="utf-8")
    for written in (work / name for name in (COMMON, METADATA, CONFIG, INTEGRITY, COMPLETE)):
        if written.is_file():
            _sync(written)
    sync_directory(work)


def _linked(file: Path, target: Path, *, copy: bool) -> None:
    """A hard link, else a copy that is on disk."""
    if not copy:
        try:
            target.hardlink_to(file)
        except OSError:  # another file system, or one without links
            pass
        else:
            return
    shutil.copy2(file, target)
    _sync(target)


def _sync(path: Path) -> None:
    with path.open("rb") as file:
        os.fsync(file.fileno())
