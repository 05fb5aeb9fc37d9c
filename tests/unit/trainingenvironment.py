"""The environment of images/training: torch and Megatron from its own uv.lock, made once below the cache.

It holds 5 GB and lies outside the checkout, named by its lock; the lock's hashes decide what gets into it.
"""

import fcntl
import hashlib
import os
import shutil
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
TRAINING = ROOT / "images" / "training"
PATIENCE_S = 3600.0  # downloads of 3 GB


def cache() -> Path:
    """Where tools/setup keeps its own, else the user's."""
    shared = Path("/var/cache/bedplate")
    if os.access(shared if shared.exists() else shared.parent, os.W_OK):
        return shared
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "bedplate"


def uv() -> str:
    """The one on PATH that answers (a shim of pyenv may not), else the one that tools/setup got."""
    for candidate in ("uv", *sorted(map(str, cache().glob("uv-*/bin/uv")), reverse=True)):
        if (
            shutil.which(candidate)
            and not subprocess.run([candidate, "--version"], capture_output=True, check=False).returncode
        ):
            return candidate
    raise AssertionError("no uv: run tools/setup")


def made() -> Path:
    """The environment; whoever comes while it is being made waits for it."""
    wanted = hashlib.sha256((TRAINING / "uv.lock").read_bytes() + sys.version.encode()).hexdigest()[:16]
    place = cache() / f"training-{wanted}"
    place.parent.mkdir(parents=True, exist_ok=True)
    given = {**os.environ, "UV_PROJECT_ENVIRONMENT": str(place)}
    words = [uv(), "sync", "--locked", "--no-python-downloads", "--no-install-project", "--python", sys.executable]
    with place.with_name(f".{place.name}.lock").open("w") as turn:
        fcntl.flock(turn, fcntl.LOCK_EX)
        done = subprocess.run(
            words, cwd=TRAINING, env=given, capture_output=True, text=True, check=False, timeout=PATIENCE_S
        )
    assert done.returncode == 0, done.stdout + done.stderr
    return place
