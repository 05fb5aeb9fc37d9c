"""Eight processes, every kind of parallelism: 100 steps are 50, a new process, and 50; a bad restore is named."""

import json
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from conftest import PATIENCE_S, ROOT, environment

from bedplate_train import state
from bedplate_train.accept.resume import digests

pytestmark = [pytest.mark.ranks, pytest.mark.shows]

type Start = Callable[[list[str], Path], "subprocess.Popen[bytes]"]
TORCHRUN = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "8"]
# Half of tiny's batch: two micro-batches fill two stages, and a step takes half as long. Everything else is tiny's:
# tensor 2 x pipeline 2 x data 2, sequence parallelism, the distributed optimizer, both overlaps.
EIGHT: dict[str, Any] = {
    "machines": {"gpus_per_server": 8}, "parallel": {"tensor": 2, "pipeline": 2, "sequence": True},
    "batch": {"global": 4}, "steps": 100,
}  # fmt: skip


def test_100_steps_are_50_and_a_new_process_and_50_and_a_fault_in_a_restored_part_is_named(
    tmp_path: Path, write: Callable[..., Path], started: Start
) -> None:
    """With dropout: the generators count. Bit by bit in memory, on every rank; the middle is the control."""
    log = tmp_path / "log"
    path = write(tmp_path, **EIGHT, checkpoint={"every": 1000})
    given = [*TORCHRUN, str(Path(__file__).with_name("planted.py")), str(tmp_path), str(path)]
    assert started(given, log).wait(PATIENCE_S) == 0, log.read_text()[-3000:]
    found = json.loads((tmp_path / "found.json").read_text())
    assert found.pop("none") == {"restored": [], "later": []}
    assert set(found) == {"optimizer step", "generators", "data position", "schedule"}
    for part, differing in found.items():
        assert differing["restored"] == [part]
        assert "parameters" in differing["later"], part

    words = [*TORCHRUN, "-m", "bedplate_train.worker", str(path), "--digests", str(tmp_path / "digests")]
    assert started(words, log).wait(PATIENCE_S) == 0, log.read_text()[-3000:]
    states = json.loads((tmp_path / "states.json").read_text())
    middle, end = ({int(r): each for r, each in states[name].items()} for name in ("middle", "end"))
    resumed = digests(tmp_path / "digests", "end")
    assert len(resumed) == 8
    assert state.count(resumed) > 400
    assert state.differences(middle, digests(tmp_path / "digests", "restored")) == {}
    assert state.differences(end, resumed) == {}
    assert set(state.differences(middle, resumed)) == set(state.PARTS), "the control"


def test_megatrons_pretrain_program_runs_the_same_flags_and_100_steps_are_50_and_a_new_process_and_50(
    tmp_path: Path, write: Callable[..., Path], started: Start
) -> None:
    """Without dropout: its loop draws from the generator that a CPU shares with the "GPU" after it restored it."""
    folders = [tmp_path / "whole", tmp_path / "resumed"]
    for folder in folders:
        folder.mkdir()
        path = write(folder, **EIGHT, model={"dropout": 0.0}, checkpoint={"every": 50, "reshardable": True})
        log = folder / "log"
        if folder.name == "resumed":
            (folder / "run").mkdir()
            subprocess.run(["cp", "-a", str(tmp_path / "whole/run/checkpoints"), str(folder / "run")], check=True)
            kept = folder / "run" / "checkpoints"
            subprocess.run(["rm", "-r", str(kept / "iter_0000100")], check=True)
            (kept / "latest_checkpointed_iteration.txt").write_text("50")
        process = started([*TORCHRUN, "-m", "bedplate_train.pretrain", str(path)], log)
        assert process.wait(PATIENCE_S) == 0, log.read_text()[-3000:]
    ends = [str(f / "run" / "checkpoints" / "iter_0000100") for f in folders]
    middle = str(folders[0] / "run" / "checkpoints" / "iter_0000050")
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
