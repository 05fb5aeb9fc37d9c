"""The training program's own tests, in its own environment: images/training has a uv.lock of its own."""

import os
import re
import subprocess
from pathlib import Path

import pytest

from unit.trainingenvironment import TRAINING, made

PATIENCE_S = 3600.0  # minutes of runs that a busy machine makes longer

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def environment() -> Path:
    return made()


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
    words = ["-q", "-p", "no:cacheprovider", "--durations=0", "-m", selection, "--basetemp", str(tmp_path / "runs")]
    done = said(environment, "pytest", *words)
    print(done.stdout[-6000:])
    assert done.returncode == 0, done.stdout[-6000:] + done.stderr[-2000:]


def test_its_own_tests_pass(environment: Path, tmp_path: Path) -> None:
    passes(environment, tmp_path, "not ranks")


@pytest.mark.long
def test_its_comparisons_of_eight_processes_its_controls_and_the_ends_of_a_run_pass(
    environment: Path, tmp_path: Path
) -> None:
    passes(environment, tmp_path, "shows")


@pytest.mark.skipif(os.environ.get("BEDPLATE_RANKS") != "1", reason="five minutes of two cores: set BEDPLATE_RANKS=1")
def test_its_other_runs_of_several_processes_pass(environment: Path, tmp_path: Path) -> None:
    passes(environment, tmp_path, "ranks and not shows")


def test_mypy_finds_nothing_in_it(environment: Path, tmp_path: Path) -> None:
    done = said(environment, "mypy", "--cache-dir", str(tmp_path))
    assert done.returncode == 0, done.stdout + done.stderr
