"""For which Slurm a plug-in was built: read out of its bytes, and never guessed."""

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bedplate.decide.elf import NoPlugin, spank_abi
from bedplate.decide.upgrade import refusals
from unit.plugin_sample import shared_object


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
