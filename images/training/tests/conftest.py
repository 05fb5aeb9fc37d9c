"""What the tests of whole runs share: small data, a configuration of one process, a way to start it."""

import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

ROOT = Path(__file__).resolve().parents[1]
PATIENCE_S = 1800.0  # a busy machine takes minutes where a quiet one takes seconds


def environment() -> dict[str, str]:
    kept = {n: v for n, v in os.environ.items() if not n.startswith("SLURM")}
    # Compiled once into the cached environment: thousands of modules are imported again by every rank.
    kept.pop("PYTHONDONTWRITEBYTECODE", None)
    return {**kept, "OMP_NUM_THREADS": "1", "PYTHONPATH": str(ROOT)}


@pytest.fixture(scope="session")
def data(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("data")
    words = [sys.executable, "-m", "bedplate_train", "material", str(folder)]
    subprocess.run(words, check=True, env=environment(), timeout=PATIENCE_S, capture_output=True)
    return folder


@pytest.fixture(scope="session")
def write(data: Path) -> Callable[..., Path]:
    """The tiny configuration as one process, or as told; members are merged."""

    def written(folder: Path, **changes: Any) -> Path:
        given = yaml.safe_load((ROOT / "configs" / "tiny.yml").read_text())
        given["paths"] = {"data": str(data), "run": str(folder / "run")}
        given["machines"]["gpus_per_server"] = 1
        given["parallel"] = {"tensor": 1, "pipeline": 1}
        for name, value in changes.items():
            given[name] = {**given[name], **value} if isinstance(value, dict) and name in given else value
        path = folder / "run.yml"
        path.write_text(yaml.safe_dump(given))
        return path

    return written


@pytest.fixture
def started() -> Iterator[Callable[..., "subprocess.Popen[bytes]"]]:
    """Start a process in a session of its own, which is gone when the test is."""
    running: list[subprocess.Popen[bytes]] = []

    def start(words: list[str], log: Path) -> "subprocess.Popen[bytes]":
        with log.open("ab") as out:
            running.append(subprocess.Popen(words, env=environment(), stdout=out, stderr=out, start_new_session=True))
        return running[-1]

    yield start
    from bedplate_train.accept.processes import end

    for process in running:
        end(process)
