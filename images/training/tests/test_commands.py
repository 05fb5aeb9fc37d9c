"""The commands that need no torch."""

import json
import subprocess
import sys
from pathlib import Path

import pytest
from conftest import PATIENCE_S, environment

from bedplate_train.__main__ import main
from bedplate_train.faults import FINISHED, REFUSED

CONFIGS = Path(__file__).resolve().parents[1] / "configs"


def test_check_says_what_a_configuration_amounts_to(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["check", "--no-parser", str(CONFIGS / "500b.yml")]) == FINISHED
    said = capsys.readouterr().out
    assert "on 5120 GPUs: 80 replicas of 8 stages x 8 tensor ranks, 24 micro-batches a step" in said


def test_check_without_the_parser_needs_no_torch() -> None:
    ask = "import sys; from bedplate_train.__main__ import main; main(sys.argv[1:]); sys.exit('torch' in sys.modules)"
    words = [sys.executable, "-c", ask, "check", "--no-parser", str(CONFIGS / "500b.yml")]
    assert subprocess.run(words, check=False, env=environment(), timeout=PATIENCE_S).returncode == 0


def test_check_tells_every_fault_and_refuses(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    text = (CONFIGS / "500b.yml").read_text().replace("global: 1920", "global: 7").replace("heads: 144", "heads: 5")
    (tmp_path / "x.yml").write_text(text)
    assert main(["check", "--no-parser", str(tmp_path / "x.yml")]) == REFUSED
    said = capsys.readouterr().err
    assert "batch.global" in said
    assert "model.heads" in said


def test_a_file_that_is_not_there_is_told(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["check", "/no/such.yml"]) == REFUSED
    assert "/no/such.yml: cannot be read" in capsys.readouterr().err


def test_the_map_as_json_has_every_rank(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["map", "--json", str(CONFIGS / "tiny.yml")]) == FINISHED
    found = json.loads(capsys.readouterr().out)
    assert [seat["rank"] for seat in found] == list(range(8))
    assert set(found[0]) == {"rank", "server", "gpu", "tensor_group", "tensor_rank", "stage", "replica"}


def test_the_arguments_of_a_gpu_and_of_a_cpu_differ_in_what_a_cpu_lacks(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["arguments", str(CONFIGS / "tiny.yml")]) == FINISHED
    gpu = set(capsys.readouterr().out.split())
    assert main(["arguments", "--device", "cpu", str(CONFIGS / "tiny.yml")]) == FINISHED
    cpu = set(capsys.readouterr().out.split())
    assert "--dataloader-inter-document-masking" in gpu - cpu
    assert {"gloo", "local", "--reset-attention-mask"} <= cpu - gpu
