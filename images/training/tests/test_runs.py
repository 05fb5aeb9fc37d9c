"""Whole runs of one process: stopped, killed, resumed."""

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from conftest import PATIENCE_S

from bedplate_train import checkpoints, steplog
from bedplate_train.faults import FINISHED, REFUSED, STOPPED

pytestmark = pytest.mark.ranks

type Start = Callable[[list[str], Path], "subprocess.Popen[bytes]"]


def waited(condition: Callable[[], Any], process: "subprocess.Popen[bytes]", log: Path) -> Any:
    until = time.monotonic() + PATIENCE_S
    while time.monotonic() < until:
        if found := condition():
            return found
        assert process.poll() is None, log.read_text()[-3000:]
        time.sleep(0.02)
    raise AssertionError(f"nothing happened for {PATIENCE_S} s: {log.read_text()[-3000:]}")


def steps(folder: Path) -> list[dict[str, Any]]:
    return list(steplog.lines(folder / "run" / "steps.jsonl"))


@pytest.mark.shows
def test_signals_and_the_time_limit_end_with_a_checkpoint_and_a_kill_leaves_the_previous_one(
    tmp_path: Path, write: Callable[..., Path], started: Start
) -> None:
    """One run, stopped in every way; each attempt goes on where the last complete checkpoint is."""
    log, root = tmp_path / "log", tmp_path / "run" / "checkpoints"
    given: dict[str, Any] = {"steps": 100_000, "optimizer": {"warmup": 10}, "checkpoint": {"every": 100_000, "keep": 9}}
    words = [sys.executable, "-m", "bedplate_train", "run", str(write(tmp_path, **given))]

    def latest() -> int:
        found = checkpoints.latest(root)
        assert found
        return found.step

    for attempt, number in ((1, signal.SIGTERM), (2, signal.SIGUSR1)):
        process = started(words, log)
        waited(lambda: [s for s in steps(tmp_path) if s["attempt"] == attempt][2:], process, log)  # noqa: B023
        process.send_signal(number)
        assert process.wait(PATIENCE_S) == STOPPED, log.read_text()[-3000:]
        assert latest() == steps(tmp_path)[-1]["step"]
        assert f"({number.name} on rank 0)" in log.read_text()

    write(tmp_path, **given, stop={"after_s": 1.0})  # it is over before the imports are: not a step, and the same end
    assert started(words, log).wait(PATIENCE_S) == STOPPED, log.read_text()[-3000:]
    assert "(time limit on rank 0)" in log.read_text()
    kept = latest()

    write(tmp_path, **given | {"checkpoint": {"every": 2, "keep": 9}})
    process = started(words, log)
    known = {p.name for p in root.iterdir()}

    def half_saved() -> bool:
        new = [p for p in root.glob("step-*") if p.name not in known]
        return any(not (p / checkpoints.COMPLETE).exists() for p in new)

    waited(half_saved, process, log)
    os.killpg(process.pid, signal.SIGKILL)
    process.wait(PATIENCE_S)
    assert latest() >= kept
    cut = [p for p in root.glob("step-*") if checkpoints.complete(p) is None]
    assert len(cut) == 1, "the kill came between two saves"
    kept, seen = latest(), steps(tmp_path)[-1]

    write(tmp_path, **given)
    process = started(words, log)
    first = waited(lambda: [s for s in steps(tmp_path) if s["attempt"] > seen["attempt"]], process, log)[0]
    assert first["resumed"] == {
        "from_step": kept,
        "repeated_samples": 8 * (seen["step"] - kept),
        "skipped_samples": 0,
    }
    process.send_signal(signal.SIGTERM)
    assert process.wait(PATIENCE_S) == STOPPED


def test_a_run_ends_writes_its_map_and_its_log_and_is_not_resumed_with_other_data(
    tmp_path: Path, write: Callable[..., Path], started: Start
) -> None:
    log = tmp_path / "log"
    path = write(
        tmp_path, steps=4, optimizer={"warmup": 1}, checkpoint={"every": 4}, profile={"first": 2, "last": 3},
        log={"waiting_every": 2}, data={"workers": 1},
    )  # fmt: skip
    words = [sys.executable, "-m", "bedplate_train", "run", str(path)]
    assert started(words, log).wait(PATIENCE_S) == FINISHED, log.read_text()[-3000:]
    lines = steps(tmp_path)
    assert [line["step"] for line in lines] == [1, 2, 3, 4]
    assert [line["samples"] for line in lines] == [[0, 7], [8, 15], [16, 23], [24, 31]]
    for line in lines:
        assert 0 < line["loss_tokens"] < line["tokens"] == 256
        assert line["loss"] > 0
        assert line["gradient_norm"] > 0
        assert line["tokens_per_s"] > 0
        assert len(line["peak_bytes"]) == 1
    assert [line["waited_s"] is None for line in lines] == [True, False, True, False]
    assert [seat["rank"] for seat in json.loads((tmp_path / "run" / "map.json").read_text())] == [0]
    assert (tmp_path / "run" / "profile" / "rank-00000.json").stat().st_size > 1000

    write(tmp_path, steps=4, seed=99, optimizer={"warmup": 1}, checkpoint={"every": 4})
    assert started(words, log).wait(PATIENCE_S) == REFUSED, log.read_text()[-3000:]
    assert "its data position means nothing here" in log.read_text()


ELSEWHERE = """
import os, sys
os.environ["SLURMD_NODENAME"] = "n" + os.environ["RANK"]
from bedplate_train.worker import main
if __name__ == "__main__":
    sys.exit(main())
"""


def test_a_tensor_group_on_two_servers_is_refused_before_anything_is_computed(
    tmp_path: Path, write: Callable[..., Path], started: Start
) -> None:
    (tmp_path / "elsewhere.py").write_text(ELSEWHERE)
    path = write(tmp_path, machines={"gpus_per_server": 2}, parallel={"tensor": 2, "pipeline": 1})
    words = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2"]
    log = tmp_path / "log"
    assert started([*words, str(tmp_path / "elsewhere.py"), str(path)], log).wait(PATIENCE_S) != 0
    said = log.read_text()
    assert "tensor group 0 (ranks 0 to 1) is on servers n0, n1" in said
    assert "n0 has 1 ranks, machines.gpus_per_server is 2" in said
    assert not (tmp_path / "run").exists()
