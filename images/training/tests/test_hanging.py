"""A rank that hangs is ended and named."""

import os
import time
from pathlib import Path

import pytest

from bedplate_train import beats
from bedplate_train.accept import processes

NOW = 1000.0


def beat(rank: int, count: int = 5, age: float = 1.0, place: str = "sums") -> beats.Beat:
    return beats.Beat(rank, place, count, NOW - age, "n1", 100 + rank)


@pytest.mark.parametrize(
    ("found", "said"),
    [
        ([beat(0), beat(1), beat(2)], "all 3 ranks were at the same place: sums"),
        (
            [beat(0), beat(1, count=4, place="product"), beat(2)],
            "rank 1 was behind the others, at product (pid 101 on n1)",
        ),
        ([beat(0), beat(1), beat(2, age=60)], "rank 2 stood still, at sums (pid 102 on n1)"),
        ([beat(0), beat(2)], "rank 1 never gave a sign of life"),
    ],
)
def test_the_rank_that_keeps_the_others_waiting_is_named(found: list[beats.Beat], said: str) -> None:
    assert beats.hung({b.rank: b for b in found}, 3, NOW) == said


HANGS = """
import os, sys, time
from pathlib import Path
from bedplate_train.beats import Heart
heart = Heart(Path(os.environ["BEDPLATE_TRAIN_BEATS"]), int(os.environ["RANK"]))
heart.tell("product")
Path(sys.argv[1], os.environ["RANK"]).write_text(str(os.getpid()))
if os.environ["RANK"] == "1":
    import signal
    signal.signal(signal.SIGTERM, signal.SIG_IGN)  # a rank in a kernel does not hear it either
    time.sleep(3600)
heart.tell("sums")
time.sleep(3600)
"""


@pytest.mark.ranks
def test_ranks_that_are_not_back_in_time_are_ended_and_the_hung_one_named(tmp_path: Path) -> None:
    program = tmp_path / "hangs.py"
    program.write_text(HANGS)
    limit = 30.0
    for _ in range(4):  # a busy machine may not have started them by then
        ended = processes.ranks([str(program), str(tmp_path)], 2, limit, tmp_path / "run")
        if len([p for p in (tmp_path / "0", tmp_path / "1") if p.exists()]) == 2:
            break
        limit *= 2
    assert not ended.fine
    assert ended.hung.startswith("rank 1 was behind the others, at product")
    for rank in ("0", "1"):
        pid = int((tmp_path / rank).read_text())
        for _ in range(100):
            if not running(pid):
                break
            time.sleep(0.1)
        assert not running(pid)


def running(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
