"""The training program's own tests, in its own environment: images/training has a uv.lock of its own.

The environment holds torch and Megatron (5 GB) and lies outside the checkout, named by its lock, so that it is made
once; the lock's hashes decide what gets into it.
"""

import hashlib
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
TRAINING = ROOT / "images" / "training"
PATIENCE_S = 3600.0  # downloads of 3 GB, then minutes of runs that a busy machine makes longer

pytestmark = pytest.mark.slow


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


@pytest.fixture(scope="module")
def environment() -> Path:
    wanted = hashlib.sha256((TRAINING / "uv.lock").read_bytes() + sys.version.encode()).hexdigest()[:16]
    place = cache() / f"training-{wanted}"
    given = {**os.environ, "UV_PROJECT_ENVIRONMENT": str(place)}
    words = [uv(), "sync", "--locked", "--no-python-downloads", "--no-install-project", "--python", sys.executable]
    done = subprocess.run(
        words, cwd=TRAINING, env=given, capture_output=True, text=True, check=False, timeout=PATIENCE_S
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return place


def said(environment: Path, *words: str) -> "subprocess.CompletedProcess[str]":
    given = {**os.environ, "OMP_NUM_THREADS": "1", "PYTHONPATH": str(TRAINING)}
    given.pop("PYTHONDONTWRITEBYTECODE", None)  # compiled once: every rank imports thousands of modules
    program = [str(environment / "bin" / "python"), "-m", *words]
    return subprocess.run(
        program, cwd=TRAINING, env=given, capture_output=True, text=True, check=False, timeout=PATIENCE_S
    )


def test_the_wheel_of_megatron_is_pinned_by_its_hash() -> None:
    lock = (TRAINING / "uv.lock").read_text()
    wheel = re.search(r"megatron_core-0\.19\.2-cp312-[^\"]*x86_64\.whl\", hash = \"(sha256:[0-9a-f]{64})", lock)
    assert wheel
    assert wheel.group(1) == "sha256:8e3e486f13f559450415b9b9dc0ff3331a0bb83dd154553f7f350a75ff9c42b5"


def passes(environment: Path, tmp_path: Path, selection: str) -> None:
    words = ["-q", "-p", "no:cacheprovider", "-m", selection, "--basetemp", str(tmp_path / "runs")]
    done = said(environment, "pytest", *words)
    print(done.stdout[-6000:])
    assert done.returncode == 0, done.stdout[-6000:] + done.stderr[-2000:]


def test_its_own_tests_pass(environment: Path, tmp_path: Path) -> None:
    passes(environment, tmp_path, "not ranks")


@pytest.mark.skipif(os.environ.get("BEDPLATE_RANKS") != "1", reason="ten minutes of two cores: set BEDPLATE_RANKS=1")
def test_its_runs_of_several_processes_pass(environment: Path, tmp_path: Path) -> None:
    passes(environment, tmp_path, "ranks")


def test_mypy_finds_nothing_in_it(environment: Path, tmp_path: Path) -> None:
    done = said(environment, "mypy", "--cache-dir", str(tmp_path))
    assert done.returncode == 0, done.stdout + done.stderr
