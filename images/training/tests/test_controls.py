"""Accumulation, packing, padding, the end marker: one process in FP32, each beside a control that must miss."""

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import yaml
from conftest import PATIENCE_S, ROOT, environment

pytestmark = [pytest.mark.ranks, pytest.mark.shows]

PROGRAM = """
import json, sys
from pathlib import Path
from bedplate_train.worker import quiet
if __name__ == "__main__":
    quiet()
    from bedplate_train import cpu
    cpu.enable()
    import torch
    torch.set_num_threads(1)
    from bedplate_train.accept import learning
    from bedplate_train.accept.profile import open_profile
    profile, folder, answer = map(Path, sys.argv[1:])
    stage = learning.Stage(open_profile(profile), folder)
    answer.write_text(json.dumps(learning.alone(stage, lambda name: None)))
"""


@pytest.fixture(scope="module")
def checks(tmp_path_factory: pytest.TempPathFactory, data: Path) -> dict[str, dict[str, Any]]:
    """What the acceptance asks of one process (accept/learning.py), by the tolerances of profiles/cpu.yml."""
    folder = tmp_path_factory.mktemp("controls")
    given = yaml.safe_load((ROOT / "profiles" / "cpu.yml").read_text())
    given["paths"] = {"data": str(data), "run": str(folder / "run"), "data_is_read_only": False}
    (folder / "profile.yml").write_text(yaml.safe_dump(given))
    (folder / "program.py").write_text(PROGRAM)
    words = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "1"]
    words += [str(folder / name) for name in ("program.py", "profile.yml", "run", "answer.json")]
    done = subprocess.run(
        words, env=environment(), capture_output=True, text=True, check=False, timeout=PATIENCE_S
    )  # fmt: skip
    assert done.returncode == 0, done.stderr[-3000:]
    return {each["check"]: each for each in json.loads((folder / "answer.json").read_text())}


def test_micro_batches_are_one_large_batch_by_tokens_and_not_by_means(checks: dict[str, dict[str, Any]]) -> None:
    for name in ("8 micro-batches of 1", "4 micro-batches of 2", "2 micro-batches of 4"):
        same, control = checks[f"{name} = one of 8"], checks[f"control: mean of means, {name}"]
        assert same["passed"]
        assert same["error"] <= 1e-5
        assert control["passed"]
        assert control["error"] >= 1e-3
    assert len(set(checks["loss-bearing tokens of the rows"]["found"])) > 1


def test_a_packed_document_does_not_see_the_one_before_it_unless_attention_is_plain_causal(
    checks: dict[str, dict[str, Any]],
) -> None:
    assert checks["the first document itself changes"]["passed"]
    assert checks["later documents do not see the first"]["moved"] == 0
    assert checks["packed = alone"]["passed"]
    assert checks["control: plain causal attention"]["error"] >= 1e-3


def test_padding_bears_no_loss_and_the_end_marker_is_learned(checks: dict[str, dict[str, Any]]) -> None:
    assert checks["labels in padding change no gradient"]["error"] == 0
    assert checks["control: padding that bears loss"]["error"] >= 1e-3
    learned, control = checks["the loss of the end marker falls"], checks["control: no loss on the marker"]
    assert learned["nats"] >= 1 > control["nats"]
    assert all(each["passed"] for each in checks.values())
