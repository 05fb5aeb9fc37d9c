"""Which nodes Slurm refuses since its controllers changed: those, and not the ones that were refused before."""

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from bedplate.sources import checkout

pytestmark = pytest.mark.slow  # every test starts programs

MODULE = checkout.root() / "playbooks/library/bedplate_slurm_registered.py"
LOST = "gres/gpu count reported lower than configured (4 < 8)"


def node(name: str, state: str, started: int, reason: str = "") -> dict[str, Any]:
    when = {"set": True, "infinite": False, "number": started}
    return {"name": name, "state": state.split("+"), "reason": reason, "slurmd_start_time": when}


def asked(folder: Path, answers: list[list[dict[str, Any]]], **given: Any) -> dict[str, Any]:
    """The module against a Slurm that gives these answers one after the other, the last one for ever."""
    folder.mkdir(exist_ok=True)
    for index, nodes in enumerate(answers):
        (folder / f"answer{index}").write_text(json.dumps({"nodes": nodes}))
    program = folder / "scontrol"
    program.write_text(f"""#!/bin/sh
cd {folder}
[ -e answer0 ] || {{ echo "slurm_load_node: Unable to contact slurm controller" >&2; exit 1; }}
seen=$(cat seen 2>/dev/null || echo 0)
[ -e answer$seen ] || seen=$((seen - 1))
echo $((seen + 1)) > seen
cat answer$seen
""")
    program.chmod(0o755)
    done = subprocess.run(
        [sys.executable, MODULE], check=False, capture_output=True, text=True,
        input=json.dumps({"ANSIBLE_MODULE_ARGS": given}), env={**os.environ, "PATH": f"{folder}:{os.environ['PATH']}"},
    )  # fmt: skip
    said: dict[str, Any] = json.loads(done.stdout)
    return said


@pytest.fixture
def before(tmp_path: Path) -> dict[str, Any]:
    nodes = [node("n1", "IDLE", 10), node("n2", "IDLE+DRAIN+INVALID_REG", 10, "broken"),
             node("n3", "DOWN+NOT_RESPONDING", 10)]  # fmt: skip
    said = asked(tmp_path / "before", [nodes])
    assert said["nodes"]["n1"] == {"state": ["IDLE"], "reason": "", "started": 10}
    found: dict[str, Any] = said["nodes"]
    return found


def test_a_node_that_no_longer_fits_is_waited_for_and_told_with_slurms_reason(
    tmp_path: Path, before: dict[str, Any]
) -> None:
    old = [node("n1", "IDLE", 10), node("n2", "IDLE+DRAIN+INVALID_REG", 20, "broken"), node("n3", "DOWN", 10)]
    new = [node("n1", "IDLE+DRAIN+INVALID_REG", 21, LOST), *old[1:]]
    said = asked(tmp_path / "now", [old, old, new], before=before)
    assert said["failed"]
    assert said["msg"] == (
        f"Slurm refuses 1 nodes since this change (INVALID_REG), and gives them no job: n1 ({LOST})."
        " They are not what the new slurm.conf and gres.conf say: correct the model, or go back"
    )


def test_nodes_that_register_again_and_those_refused_before_are_well(tmp_path: Path, before: dict[str, Any]) -> None:
    nodes = [node("n1", "IDLE", 20), node("n2", "IDLE+DRAIN+INVALID_REG", 20, "broken"), node("n3", "DOWN", 10)]
    said = asked(tmp_path / "now", [nodes], before=before)
    assert (said.get("failed", False), said["changed"]) == (False, False)


def test_a_node_that_does_not_register_again_is_waited_for_no_longer_than_asked(
    tmp_path: Path, before: dict[str, Any]
) -> None:
    said = asked(tmp_path / "now", [[node("n1", "IDLE", 10), node("n2", "IDLE", 11)]], before=before, patience_s=1)
    assert not said.get("failed", False)
    assert "1 nodes did not register again within 1 s, so whether they fit is not known: n1" in str(said["warnings"])


def test_slurm_need_not_answer_before_its_first_start_and_must_afterwards(
    tmp_path: Path, before: dict[str, Any]
) -> None:
    assert asked(tmp_path / "none", [])["nodes"] == {}
    said = asked(tmp_path / "none", [], before=before)
    assert "Slurm does not answer here: scontrol ended with 1: slurm_load_node: Unable to contact" in said["msg"]
