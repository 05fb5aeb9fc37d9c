"""Question 1, over the text that nvidia-smi -L prints."""

from pathlib import Path

import pytest

from bedplate_train.accept import devices
from bedplate_train.accept.profile import Profile, open_profile

PROFILES = Path(__file__).resolve().parents[1] / "profiles"


def listing(numbers: range) -> str:
    return "".join(f"GPU {n}: NVIDIA B200 (UUID: GPU-4f2c0000-0000-0000-0000-00000000000{n})\n" for n in numbers)


@pytest.fixture
def profile() -> Profile:
    return open_profile(PROFILES / "hgx-b200.yml")


def test_the_same_eight_pass(profile: Profile) -> None:
    assert devices.compared(profile, listing(range(8)), listing(range(8)))["verdict"] == "passed"


@pytest.mark.parametrize(
    ("inside", "outside", "said"),
    [
        (listing(range(7)), listing(range(8)), "the container has 7 GPUs, the profile 8"),
        (listing(range(8)), listing(range(1, 9)), "not the GPUs of the host"),
        (listing(range(8)), None, "what the host sees was not told"),
        ("", "", "the container has 0 GPUs"),
        (listing(range(4)) * 2, listing(range(8)), "the container has 8 GPUs, 4 of them different"),
    ],
)
def test_anything_else_fails(profile: Profile, inside: str, outside: str | None, said: str) -> None:
    found = devices.compared(profile, inside, outside)
    assert found["verdict"] == "failed"
    assert said in found["said"]


def test_a_stand_in_says_so() -> None:
    found = devices.answer(open_profile(PROFILES / "cpu.yml"), None, timeout_s=1)
    assert found["stand_in"] is True
    assert "no device was looked at" in found["said"]


def test_what_a_stand_in_lists_is_compared_and_stays_a_stand_in(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Where the host's listing is given, the container's is looked at, and eight of nobody's pass for no machine."""
    host = tmp_path / "host-devices.txt"
    program = tmp_path / "nvidia-smi"
    program.write_text(f"#!/bin/sh\n# STAND-IN\ncat <<'LISTING'\n{listing(range(8))}LISTING\n")
    program.chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path), prepend=":")
    profile = open_profile(PROFILES / "cpu.yml")
    host.write_text(listing(range(8)))
    found = devices.answer(profile, host, timeout_s=60)
    assert (found["verdict"], found["stand_in"], len(found["uuids"])) == ("passed", True, 8)
    assert found["said"].startswith("stand-in: 8 devices listed on both sides")
    host.write_text(listing(range(1, 9)))
    assert devices.answer(profile, host, timeout_s=60)["verdict"] == "failed"
