"""Arming: a machine's files with its one-time token in them, the event that says so, and the end of it.

The files lie in FOLDER/armed/NODE, for the boot server and root alone; the ledger has the token's hash. Files are
written first: a machine whose event is missing is not armed, and one whose files are of another token is refused.
"""

import hashlib
import json
import secrets
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Any

from bedplate.decide.netboot.isoimage import Extent, contents
from bedplate.decide.netboot.protocol import Install, arming, hash_token, recorded
from bedplate.decide.netboot.recipe import TOKEN
from bedplate.ledger.store import Ledger
from bedplate.model.faults import Fault
from bedplate.model.netboot import Netboot
from bedplate.sources.trees import write_tree

ARMED = "armed"
INDEX = "index.json"
TOKEN_BYTES = 32
PIECE_BYTES = 1 << 20


@dataclass(frozen=True)
class Armed:
    """The files of an armed machine as they lie there."""

    folder: Path
    token: str
    expected: Mapping[str, Any]

    @property
    def token_sha256(self) -> str:
        return hash_token(self.token)

    def file(self, name: str) -> bytes:
        return (self.folder / name).read_bytes()


def file_faults(folder: Path, netboot: Netboot) -> list[Fault]:
    """What is wrong with the image, kernel and initrd that machines will fetch: not there, or other bytes.

    Kernel and initrd of another image than that one end in "Unable to find a live file system on the network".
    """
    faults = []
    for role in (netboot.image, netboot.kernel, netboot.initrd):
        path = folder / "files" / role.name
        try:
            with path.open("rb") as file:
                found = "sha256:" + hashlib.file_digest(file, "sha256").hexdigest()
        except OSError as fault:
            faults.append(Fault(str(path), None, f"cannot be read: {fault.strerror}", "put it there"))
            continue
        if found != role.sha256:
            remedy = "one image, and the kernel and initrd out of it"
            faults.append(Fault(str(path), None, f"is {found}, fleet.yml says {role.sha256}", remedy))
    return faults or (_image_faults(folder / "files", netboot) if netboot.live == "casper" else [])


def _image_faults(files: Path, netboot: Netboot) -> list[Fault]:
    """Whether kernel and initrd are in the image: three right hashes may be of two releases."""
    path = files / netboot.image.name
    with path.open("rb") as image:

        def read(offset: int, size: int) -> bytes:
            image.seek(offset)
            return image.read(size)

        inside = contents(read, "casper")
        if inside is None:
            return [Fault(str(path), None, "no ISO image with a directory casper", "take Ubuntu's live-server image")]
        faults = []
        for what, role in (("kernel", netboot.kernel), ("initrd", netboot.initrd)):
            size = (files / role.name).stat().st_size
            if not any(each.size == size and _digest(read, each) == role.sha256 for each in inside):
                found = f"no {what} of image {netboot.image.name}: nothing in its casper/ has these bytes"
                remedy = f"copy it out of that image, and write its hash into fleet.yml (netboot.{what}.sha256)"
                faults.append(Fault(str(files / role.name), None, found, remedy))
        return faults


def _digest(read: Callable[[int, int], bytes], extent: Extent) -> str:
    digest, at, end = hashlib.sha256(), extent.offset, extent.offset + extent.size
    while at < end and (piece := read(at, min(PIECE_BYTES, end - at))):
        digest.update(piece)
        at += len(piece)
    return "sha256:" + digest.hexdigest()


def arm(
    ledger: Ledger,
    folder: Path,
    files: Mapping[str, bytes],
    index: Mapping[str, Any],
    *,
    until: datetime,
    approved_by: str,
) -> list[str]:
    """Arm the nodes of a rendering, all at once; returns their names.

    files, index: what cli/netboot.py rendered: nodes/NODE/NAME -> bytes.
    """
    drafts = []
    for node, expected in index["nodes"].items():
        token = secrets.token_urlsafe(TOKEN_BYTES)
        prefix = f"nodes/{node}/"
        own = {
            name.removeprefix(prefix): data.replace(TOKEN.encode(), token.encode())
            for name, data in files.items()
            if name.startswith(prefix)
        }
        own[INDEX] = (json.dumps({"token": token, "expected": expected}, sort_keys=True) + "\n").encode()
        write_tree(folder / ARMED / node, own, mark=INDEX)
        drafts.append(
            arming(
                node, index["environment"], token=token, until=until, wipes=wiped(expected),
                approved_by=approved_by,
            )
        )  # fmt: skip
    ledger.append(*drafts)
    return list(index["nodes"])


def wiped(expected: Mapping[str, Any]) -> list[str]:
    """Serial numbers of the disks that an installation wipes."""
    data = expected.get("data_disks") or {}
    return [*expected["boot_disk_serials"], *(data["serials"] if data.get("wipe") else ())]


def consequences(folder: Path, node: str, expected: Mapping[str, Any]) -> Iterator[str]:
    """What a person is told before a node is armed: which disks go, and how much is on data disks."""
    yield f"{node}  serial {expected['serial']}  {' '.join(expected['boot_disk_serials'])}"
    if not (data := expected.get("data_disks")):
        return
    serials = data["serials"]
    many = "1 data disk" if len(serials) == 1 else f"{len(serials)} data disks"
    if not data["wipe"]:
        yield f"  {many} kept: {' '.join(serials)}"
        return
    sizes = _sizes(folder, node, serials)
    size = f"{sum(sizes.values()):,} bytes" if sizes else "size unknown, no inventory of it here"
    if sizes and len(sizes) < len(serials):
        size += f" on {len(sizes)} of them, of the others unknown"
    yield f"  and {many}, {size}: {' '.join(serials)}"


def _sizes(folder: Path, node: str, serials: Sequence[str]) -> dict[str, int]:
    """Bytes of disks, as the machine said when it was installed last; what it said may be anything."""
    try:
        disks = json.loads((folder / "logs" / node / "inventory.json").read_bytes())["found"]["disks"]
        told = {
            wanted: disk.get("size")
            for wanted in serials
            for disk in disks
            if isinstance(disk, dict) and wanted in str(disk.get("serial"))
        }
    except (OSError, ValueError, KeyError, TypeError):
        return {}
    return {wanted: size for wanted, size in told.items() if type(size) is int and size >= 0}


def disarm(ledger: Ledger, nodes: Sequence[str], installs: Mapping[str, Install], *, why: str) -> None:
    ledger.append(*(recorded("disarmed", node, installs.get(node, Install()), why=why) for node in nodes))


def armed_files(folder: Path, node: str) -> Armed | None:
    """The files of a machine that was armed; None where there are none that can be read."""
    place = folder / ARMED / node
    try:
        index = json.loads((place / INDEX).read_bytes())
        return Armed(place, index["token"], index["expected"])
    except (OSError, ValueError, KeyError, TypeError):
        return None
