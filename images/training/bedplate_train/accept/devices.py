"""Question 1: does the container see the devices of the host, all of them, and the same ones?"""

import re
import subprocess
from pathlib import Path
from typing import Any

from bedplate_train.accept.profile import Profile

_UUID = re.compile(r"\(UUID: (GPU-[0-9a-fA-F-]+)\)")


def uuids(listing: str) -> list[str]:
    """Of the output of `nvidia-smi -L`: `GPU 0: NVIDIA B200 (UUID: GPU-4f2c...)`."""
    return _UUID.findall(listing)


def answer(profile: Profile, host: Path | None, *, timeout_s: float) -> dict[str, Any]:
    stand_in = profile.devices.kind == "stand-in"
    if stand_in and host is None:
        return {
            "verdict": "passed",
            "stand_in": True,
            "said": f"stand-in: {profile.devices.count} processes on a CPU, no device was looked at",
        }
    try:
        listed = subprocess.run(["nvidia-smi", "-L"], capture_output=True, text=True, timeout=timeout_s, check=True)
    except (OSError, subprocess.SubprocessError) as fault:
        return _failed(f"nvidia-smi -L in the container: {fault}", "was the container started with its devices?")
    found = compared(profile, listed.stdout, host.read_text() if host and host.exists() else None)
    if stand_in and found["verdict"] == "passed":  # a listing that a stand-in printed: the order of things, no device
        said = (
            f"stand-in: {len(found['uuids'])} devices listed on both sides, {profile.devices.count} processes on a CPU"
        )
        return {**found, "stand_in": True, "said": said}
    return found


def compared(profile: Profile, inside: str, outside: str | None) -> dict[str, Any]:
    """Container against host and profile; what the host sees must have been told."""
    found = uuids(inside)
    if outside is None:
        return _failed("what the host sees was not told", "give --host-devices the output of nvidia-smi -L there")
    expected = uuids(outside)
    if len(found) != profile.devices.count or len(set(found)) != len(found):
        several = f", {len(set(found))} of them different" if len(set(found)) != len(found) else ""
        said = f"the container has {len(found)} GPUs{several}, the profile {profile.devices.count}"
        return _failed(said, "nvidia-smi -L in the container, and how it was given its devices")
    if sorted(found) != sorted(expected):
        missing = sorted(set(expected) - set(found))
        return _failed(f"not the GPUs of the host: {', '.join(missing) or 'others'}", "compare nvidia-smi -L on both")
    return {"verdict": "passed", "stand_in": False, "uuids": found}


def _failed(said: str, look_at: str) -> dict[str, Any]:
    return {"verdict": "failed", "said": said, "look_at": look_at}
