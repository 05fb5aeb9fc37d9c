"""A checkpoint is complete or is none, whenever the machine stops."""

from pathlib import Path

import pytest

from bedplate_train import checkpoints
from bedplate_train.faults import Refused


def saved(root: Path, step: int) -> checkpoints.Checkpoint:
    path = checkpoints.begin(root, step)
    (path / "__0_0.distcp").write_bytes(b"x" * step)
    return checkpoints.finish(path, {"step": step})


def test_the_latest_complete_one_is_found(tmp_path: Path) -> None:
    assert checkpoints.latest(tmp_path) is None
    saved(tmp_path, 50)
    saved(tmp_path, 100)
    found = checkpoints.latest(tmp_path)
    assert found
    assert found.step == 100
    assert found.record["files"] == {"__0_0.distcp": 100}


def test_a_save_that_was_cut_off_does_not_count(tmp_path: Path) -> None:
    saved(tmp_path, 50)
    (checkpoints.begin(tmp_path, 100) / "__0_0.distcp").write_bytes(b"half")
    found = checkpoints.latest(tmp_path)
    assert found
    assert found.step == 50
    saved(tmp_path, 100)
    again = checkpoints.latest(tmp_path)
    assert again
    assert again.step == 100


def test_one_that_was_completed_and_not_yet_named_counts(tmp_path: Path) -> None:
    saved(tmp_path, 50)
    named = (tmp_path / checkpoints.LATEST).read_bytes()
    saved(tmp_path, 100)
    (tmp_path / checkpoints.LATEST).write_bytes(named)
    found = checkpoints.latest(tmp_path)
    assert found
    assert found.step == 100


def test_a_named_one_whose_file_was_cut_is_refused(tmp_path: Path) -> None:
    saved(tmp_path, 50)
    (saved(tmp_path, 100).path / "__0_0.distcp").write_bytes(b"short")
    with pytest.raises(Refused, match="step-00000100, which is not complete"):
        checkpoints.latest(tmp_path)


def test_old_ones_go_and_unfinished_ones_stay(tmp_path: Path) -> None:
    for step in (10, 20, 30):
        saved(tmp_path, step)
    checkpoints.begin(tmp_path, 40)
    gone = checkpoints.retain(tmp_path, 2)
    assert [p.name for p in gone] == ["step-00000010"]
    assert [c.step for c in checkpoints.every(tmp_path)] == [20, 30]
    assert (tmp_path / "step-00000040").is_dir()
