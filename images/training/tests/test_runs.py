"""Whole runs of one process: stopped, killed, resumed; restores with a planted fault; Megatron's own program."""

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
from conftest import PATIENCE_S, ROOT, environment

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


def test_a_fault_in_a_restored_part_is_found_and_named(
    tmp_path: Path, write: Callable[..., Path], started: Start
) -> None:
    """Restored and resumed with a fault in one part: that part, and no other, differs from what was saved."""
    path = write(tmp_path, steps=8, optimizer={"warmup": 2}, checkpoint={"every": 100})
    program = Path(__file__).with_name("planted.py")
    log = tmp_path / "log"
    words = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "1"]
    process = started([*words, str(program), str(tmp_path), str(path)], log)
    assert process.wait(PATIENCE_S) == 0, log.read_text()[-3000:]
    found = json.loads((tmp_path / "found.json").read_text())
    assert found.pop("none") == {"restored": [], "end": []}
    for part, differing in found.items():
        assert differing["restored"] == [part]
        assert "parameters" in differing["end"], part
    assert set(found) == {"optimizer step", "generators", "data position", "schedule"}


def test_megatrons_pretrain_program_runs_the_same_flags_and_resumes(
    tmp_path: Path, write: Callable[..., Path], started: Start
) -> None:
    """Without dropout: its loop draws from the generator that a CPU shares with the "GPU" after it restored it."""
    folders = [tmp_path / "whole", tmp_path / "resumed"]
    words = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "4"]
    for folder in folders:
        folder.mkdir()
        path = write(
            folder,
            steps=6,
            machines={"gpus_per_server": 4},
            parallel={"tensor": 2, "pipeline": 2, "sequence": True, "stages": [1, 3]},
            model={"dropout": 0.0},
            optimizer={"warmup": 2},
            checkpoint={"every": 3, "reshardable": True},
        )
        log = folder / "log"
        if folder.name == "resumed":
            (folder / "run").mkdir()
            subprocess.run(["cp", "-a", str(tmp_path / "whole/run/checkpoints"), str(folder / "run")], check=True)
            kept = folder / "run" / "checkpoints"
            subprocess.run(["rm", "-r", str(kept / "iter_0000006")], check=True)
            (kept / "latest_checkpointed_iteration.txt").write_text("3")
        process = started([*words, "-m", "bedplate_train.pretrain", str(path)], log)
        assert process.wait(PATIENCE_S) == 0, log.read_text()[-3000:]
    ends = [str(f / "run" / "checkpoints" / "iter_0000006") for f in folders]
    middle = str(folders[0] / "run" / "checkpoints" / "iter_0000003")
    same, control = (compared(ends[0], other) for other in (ends[1], middle))
    assert same["tensors"] > 30
    assert same["differing"] == []
    assert len(control["differing"]) > 30


COMPARE = """
import json, sys, torch
import torch.distributed.checkpoint as dcp
from torch.distributed.checkpoint import FileSystemReader
from torch.distributed.checkpoint.metadata import TensorStorageMetadata
def read(path):
    known = FileSystemReader(path).read_metadata().state_dict_metadata
    tensors = {k: m for k, m in known.items() if isinstance(m, TensorStorageMetadata)}
    found = {k: torch.zeros(m.size, dtype=m.properties.dtype) for k, m in tensors.items()}
    dcp.load(found, storage_reader=FileSystemReader(path), no_dist=True)
    return found
a, b = read(sys.argv[1]), read(sys.argv[2])
assert a.keys() == b.keys()
print(json.dumps({"tensors": len(a), "differing": [k for k in a if not torch.equal(a[k], b[k])]}))
"""


def compared(left: str, right: str) -> dict[str, Any]:
    """Two checkpoints tensor by tensor: only for fully reshardable ones, which hold no padding."""
    words = [sys.executable, "-W", "ignore", "-c", COMPARE, left, right]
    done = subprocess.run(
        words, capture_output=True, text=True, check=True, env=environment(), cwd=ROOT, timeout=PATIENCE_S
    )
    found: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return found
