"""For which Slurm a plug-in was built: read out of its bytes, and never guessed."""

import struct
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bedplate.decide.elf import NoPlugin, spank_abi
from bedplate.decide.upgrade import refusals


def shared_object(number: int, *, name: str = "plugin_version", size: int = 4, big: bool = False) -> bytes:
    """The smallest ELF file with one dynamic symbol: null, .rodata, .dynsym, .dynstr, .shstrtab."""
    order = ">" if big else "<"
    names = b"\0.rodata\0.dynsym\0.dynstr\0.shstrtab\0"
    strings = b"\0" + name.encode() + b"\0"
    data = struct.pack(order + "I", number)
    symbols = bytes(24) + struct.pack(order + "IBBHQQ", 1, 0x11, 0, 1, 0x1000, size)
    parts = [data, symbols, strings, names]
    offsets, at = [], 64
    for part in parts:
        offsets.append(at)
        at += len(part)
    types = [(1, 1, 2, 0x1000, 0, 0), (9, 11, 2, 0, 3, 24), (17, 3, 0, 0, 0, 0), (25, 3, 0, 0, 0, 0)]
    headers = bytes(64)
    for (title, kind, flags, address, link, entry), offset, part in zip(types, offsets, parts, strict=True):
        headers += struct.pack(
            order + "IIQQQQIIQQ", title, kind, flags, address, offset, len(part), link, 0, 1, entry
        )  # fmt: skip
    ident = b"\x7fELF" + bytes([2, 2 if big else 1, 1]) + bytes(9)
    head = ident + struct.pack(order + "HHIQQQIHHHHHH", 3, 62, 1, 0, 0, at, 0, 64, 0, 0, 64, 5, 4)
    return head + b"".join(parts) + headers


@pytest.mark.parametrize(
    ("number", "release"),
    [(0x180B05, "24.11"), (0x180B00, "24.11"), (0x190504, "25.05"), (0x1A0503, "26.05"), (0x160508, "22.05")],
)
def test_the_release_is_major_and_minor_and_the_micro_is_free(number: int, release: str) -> None:
    assert spank_abi(shared_object(number)) == release
    assert spank_abi(shared_object(number, big=True)) == release


@given(st.integers(0, 99), st.integers(0, 99), st.integers(0, 255))
def test_every_release_is_read_as_it_was_written(major: int, minor: int, micro: int) -> None:
    assert spank_abi(shared_object(major << 16 | minor << 8 | micro)) == f"{major}.{minor:02d}"


@pytest.mark.parametrize(
    ("data", "said"),
    [
        (b"", "no ELF file"),
        (b"#!/bin/sh\n", "no ELF file"),
        (b"\x7fELF", "no ELF file"),
        (Path("/bin/true").read_bytes(), "no symbol plugin_version"),
        (shared_object(1, name="plugin_name"), "no symbol plugin_version"),
        (shared_object(1, size=8), "no 32-bit number"),
    ],
    ids=["empty", "script", "magic alone", "program", "other symbol", "other size"],
)
def test_what_is_no_plug_in_is_said_and_not_guessed(data: bytes, said: str) -> None:
    with pytest.raises(NoPlugin, match=said):
        spank_abi(data)


@given(st.binary(max_size=400))
def test_any_bytes_are_a_release_or_no_plug_in(data: bytes) -> None:
    with pytest.raises(NoPlugin):
        spank_abi(data)


@given(st.integers(0, 700), st.binary(min_size=1, max_size=8))
def test_a_damaged_plug_in_is_a_release_or_no_plug_in(at: int, damage: bytes) -> None:
    whole = shared_object(0x180B05)
    at = min(at, len(whole))
    try:
        major, _, minor = spank_abi(whole[:at] + damage + whole[at + len(damage) :]).partition(".")
    except NoPlugin:
        return
    assert major.isdigit()
    assert minor.isdigit()


@pytest.mark.parametrize(
    ("wanted", "installed", "controller", "said"),
    [
        ("24.11.5-4", None, "24.11.5", ""),
        ("24.11.7-1", "24.11.5-4", "24.11.5", ""),
        ("25.05.8-1", "24.11.5-4", "26.05.3", ""),
        ("26.05.3-1", "25.11.7-1", "25.11.7", "newer than the slurmctld 25.11.7"),
        ("25.05.8-1", "25.11.7-1", "25.11.7", "goes back a release: 25.05 does not read what 25.11 wrote"),
        ("23.11.10-1", None, "26.05.3", "too old for the slurmctld 26.05.3"),
        ("24.05.1-1", None, "25.11.7", ""),
        ("22.05.8-1", None, "99.05.1", "not known here"),
        ("git", None, "25.11.7", "no releases to compare"),
        ("25.11.7-1", "unknown", "25.11.7", "no releases to compare"),
    ],
)
def test_a_node_is_never_newer_than_its_controllers_nor_older_than_they_accept(
    wanted: str, installed: str | None, controller: str, said: str
) -> None:
    found = refusals(wanted=wanted, installed=installed, controller=controller)
    assert (said in "; ".join(found)) if said else found == []
