"""One process at a time, who it is, and free again whatever ended it."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from bedplate.filelock import alone
from bedplate.model.faults import Busy

HOLDS = """\
import sys, time, pathlib
from bedplate.filelock import alone
with alone(pathlib.Path(sys.argv[1]), "x"):
    print("held", flush=True)
    time.sleep(600)
"""


def test_the_second_is_refused_with_the_process_that_has_it(tmp_path: Path) -> None:
    path = tmp_path / "lock"
    with alone(path, "held"), pytest.raises(Busy, match=f"^by {os.getpid()}: wait$"), alone(path, "by {pid}: wait"):
        raise AssertionError("not reached")
    with alone(path, "free again"):
        pass


def test_a_directory_is_held_and_nothing_is_written_into_it(tmp_path: Path) -> None:
    with alone(tmp_path, "x"), pytest.raises(Busy, match="process \\?"), alone(tmp_path, "process {pid}"):
        raise AssertionError("not reached")
    assert list(tmp_path.iterdir()) == []


def test_what_fails_while_it_is_held_frees_it(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="inside"), alone(tmp_path / "lock", "x"):
        raise ValueError("inside")
    with alone(tmp_path / "lock", "x"):
        pass


@pytest.mark.slow
def test_a_killed_holder_leaves_it_free(tmp_path: Path) -> None:
    path = tmp_path / "lock"
    with subprocess.Popen([sys.executable, "-c", HOLDS, str(path)], stdout=subprocess.PIPE, text=True) as holder:
        assert holder.stdout is not None
        assert holder.stdout.readline() == "held\n"
        with pytest.raises(Busy, match=f"^{holder.pid}$"), alone(path, "{pid}"):
            raise AssertionError("not reached")
        holder.kill()
        holder.wait()
    with alone(path, "x"):
        pass
