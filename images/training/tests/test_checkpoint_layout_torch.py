"""What torch itself writes, read without torch: its distributed checkpoints, and one file for each rank."""

import importlib
from argparse import Namespace
from pathlib import Path
from typing import Any

import pytest

TOOLS = Path(__file__).resolve().parents[3] / "tools"


@pytest.fixture
def inspect(monkeypatch: pytest.MonkeyPatch) -> Any:
    monkeypatch.syspath_prepend(str(TOOLS))
    return importlib.import_module("bedplate.sources.checkpoint").inspect


def state() -> dict[str, Any]:
    import torch

    model = torch.nn.Linear(4, 3)
    return {
        "model": {"weight": model.weight, "bias": model.bias.detach().to(torch.bfloat16)},
        "optimizer": {
            "state": {0: {"exp_avg": torch.zeros(3, 4), "step": torch.tensor(7.0)}},
            "param_groups": [{"lr": 0.1}],
        },
        "half": torch.arange(24, dtype=torch.int64).reshape(4, 6)[1:3],  # a view: its storage holds more than it shows
        "nothing": torch.zeros(0, 5),
        "iteration": 7,
        "args": Namespace(tensor_model_parallel_size=1, ckpt_format="fsdp_dtensor"),
    }


@pytest.mark.filterwarnings("ignore")
def test_a_distributed_checkpoint_of_torch(inspect: Any, tmp_path: Path) -> None:
    import torch.distributed.checkpoint as dcp

    saved = state()
    dcp.save(saved, checkpoint_id=tmp_path / "dcp", no_dist=True)
    found = inspect(tmp_path / "dcp")
    assert found.whole, found.faults
    assert str(found.layout) == "fsdp_dtensor"  # as its arguments say
    assert found.iteration == 7
    keys = {entry.key: (entry.shape, entry.dtype) for entry in found.entries if entry.kind == "tensor"}
    assert keys["model.weight"] == ((3, 4), "float32")
    assert keys["model.bias"] == ((3,), "bfloat16")
    assert keys["half"] == ((2, 6), "int64")
    del saved["args"]
    dcp.save(saved, checkpoint_id=tmp_path / "plain", no_dist=True)
    assert str(inspect(tmp_path / "plain").layout) == "torch_dcp"


def test_a_file_for_each_rank(inspect: Any, tmp_path: Path) -> None:
    import torch

    path = tmp_path / "iter_0000007" / "mp_rank_00" / "model_optim_rng.pt"
    path.parent.mkdir(parents=True)
    torch.save(state(), path)
    (tmp_path / "latest_checkpointed_iteration.txt").write_text("7")
    found = inspect(tmp_path)
    assert found.whole, found.faults
    assert (str(found.layout), found.iteration, found.parallel["tensor"]) == ("torch", 7, "1")
    keys = {entry.key.partition(":")[2]: (entry.shape, entry.dtype) for entry in found.entries}
    assert keys == {
        "model.weight": ((3, 4), "float32"),
        "model.bias": ((3,), "bfloat16"),
        "optimizer.state.0.exp_avg": ((3, 4), "float32"),
        "optimizer.state.0.step": ((), "float32"),
        "half": ((2, 6), "int64"),
        "nothing": ((0, 5), "float32"),
    }
    whole = path.read_bytes()
    for length in range(0, len(whole), len(whole) // 20):
        path.write_bytes(whole[:length])
        assert not inspect(tmp_path).whole
    path.write_bytes(whole)
    torch.save(state(), path, _use_new_zipfile_serialization=False)
    assert "no whole file of torch.save" in str(inspect(tmp_path).faults[0])
