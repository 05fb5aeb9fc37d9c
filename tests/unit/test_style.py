"""The linters as tests: ruff, mypy in strict mode, and the direction of imports."""

import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]


def said(*words: str) -> str:
    program = Path(sys.executable).with_name(words[0])
    done = subprocess.run([program, *words[1:]], cwd=ROOT, capture_output=True, text=True, check=False)
    return "" if done.returncode == 0 else done.stdout + done.stderr


def test_ruff_finds_nothing() -> None:
    assert not said("ruff", "check", "--no-cache", "--output-format", "concise", ".")


def test_ruff_would_format_nothing() -> None:
    assert not said("ruff", "format", "--no-cache", "--check", ".")


def test_facts_flow_one_way() -> None:
    assert not said("lint-imports", "--no-cache")


@pytest.mark.slow
def test_mypy_finds_nothing(tmp_path: Path) -> None:
    assert not said("mypy", "--cache-dir", str(tmp_path))
