"""Kernel, initrd and image have to be of one release: "Unable to find a live file system on the network" otherwise."""

import dataclasses
import io
import struct
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from bedplate.act.arming import file_faults
from bedplate.decide.netboot.isoimage import SECTOR, Extent, contents
from bedplate.model.canonical import sha256
from bedplate.model.netboot import BootFile, Netboot
from unit.netboot_sample import example


def _record(name: bytes, sector: int, size: int, *, folder: bool = False) -> bytes:
    """One record of a directory, ECMA-119 9.1: numbers stand in both orders of bytes."""
    body = struct.pack("<BI", 0, sector) + struct.pack(">I", sector) + struct.pack("<I", size) + struct.pack(">I", size)
    body += bytes(7) + bytes([2 if folder else 0]) + bytes(2) + struct.pack("<H", 1) + struct.pack(">H", 1)
    body += bytes([len(name)]) + name + (b"" if len(name) % 2 else b"\0")
    return bytes([len(body) + 1]) + body


def iso(files: dict[str, bytes], folder: bytes = b"CASPER") -> bytes:
    """A small ISO image with these files in one directory."""
    sectors = {16: b"", 17: b"\xffCD001\1", 18: b"", 19: b""}
    entries = _record(b"\0", 19, SECTOR, folder=True) + _record(b"\1", 18, SECTOR, folder=True)
    at = 20
    for name, data in files.items():
        entries += _record(f"{name.upper()}.;1".encode(), at, len(data))
        sectors[at] = data
        at += -(-len(data) // SECTOR) or 1
    root = _record(b"\0", 18, SECTOR, folder=True)
    sectors[16] = (b"\1CD001\1".ljust(156, b"\0") + root).ljust(SECTOR, b"\0")
    sectors[18] = root + _record(b"\1", 18, SECTOR, folder=True) + _record(folder, 19, SECTOR, folder=True)
    sectors[19] = entries
    made = bytearray(at * SECTOR)
    for number, data in sectors.items():
        made[number * SECTOR : number * SECTOR + len(data)] = data
    return bytes(made)


KERNEL, INITRD = b"kernel" * 700, b"initrd" * 900


@pytest.fixture
def files(tmp_path: Path) -> Path:
    (tmp_path / "files").mkdir()
    return tmp_path / "files"


def put(files: Path, image: bytes, kernel: bytes = KERNEL, initrd: bytes = INITRD) -> Netboot:
    """What lies there, with a fleet.yml that has the hashes of it."""
    netboot = example().fleet.netboot
    assert netboot is not None
    changed = {}
    for role, data in (("image", image), ("kernel", kernel), ("initrd", initrd)):
        name = getattr(netboot, role).name
        (files / name).write_bytes(data)
        changed[role] = BootFile(name, sha256(data))
    return dataclasses.replace(netboot, **changed)  # type: ignore[arg-type]


def told(files: Path, netboot: Netboot) -> list[str]:
    return [str(fault).removeprefix(f"{files}/") for fault in file_faults(files.parent, netboot)]


def test_a_kernel_and_an_initrd_out_of_the_image_are_good(files: Path) -> None:
    assert told(files, put(files, iso({"filesyst": b"x", "vmlinuz": KERNEL, "initrd": INITRD}))) == []


def test_a_kernel_of_another_release_is_told_though_its_hash_is_that_of_the_fleet(files: Path) -> None:
    netboot = put(files, iso({"vmlinuz": b"Kernel" * 700, "initrd": INITRD}))
    (line,) = told(files, netboot)
    assert line == (
        "vmlinuz-24.04.5: no kernel of image ubuntu-24.04.5-live-server-amd64.iso: nothing in its casper/ has these"
        " bytes (copy it out of that image, and write its hash into fleet.yml (netboot.kernel.sha256))"
    )


def test_an_initrd_of_another_release_is_told_too(files: Path) -> None:
    (line,) = told(files, put(files, iso({"vmlinuz": KERNEL, "initrd": b"i"})))
    assert line.startswith("initrd-24.04.5: no initrd of image ubuntu-24.04.5-live-server-amd64.iso")


@pytest.mark.parametrize("image", [b"", b"x", bytes(40_000), iso({"vmlinuz": KERNEL, "initrd": INITRD}, b"LIVE")])
def test_what_is_no_image_of_a_live_server_is_told(files: Path, image: bytes) -> None:
    (line,) = told(files, put(files, image))
    assert line == (
        "ubuntu-24.04.5-live-server-amd64.iso: no ISO image with a directory casper (take Ubuntu's live-server image)"
    )


def test_debians_live_boot_has_no_iso(files: Path) -> None:
    assert told(files, dataclasses.replace(put(files, b"a squashfs"), live="live-boot")) == []


def test_the_bytes_are_asked_for_only_where_they_are_not_those_of_the_fleet_already(files: Path) -> None:
    netboot = put(files, b"x")
    (files / netboot.kernel.name).write_bytes(b"other")
    (line,) = told(files, netboot)
    assert "fleet.yml says" in line


@settings(max_examples=100, deadline=None)
@given(junk=st.binary(max_size=300), at=st.integers(0, 20 * SECTOR))
def test_whatever_an_image_holds_it_is_read_to_an_end(junk: bytes, at: int) -> None:
    data = bytearray(iso({"vmlinuz": KERNEL}))
    data[at : at + len(junk)] = junk
    file = io.BytesIO(bytes(data))

    def read(offset: int, size: int) -> bytes:
        file.seek(offset)
        return file.read(size)

    found = contents(read, "casper")
    assert found is None or all(isinstance(each, Extent) for each in found)
