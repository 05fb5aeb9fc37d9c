"""The step log: a line for each step, and what a resume means for the samples."""

import json
from pathlib import Path

from bedplate_train.steplog import StepLog, lines, resumption


def write(path: Path, attempt: int, steps: range) -> None:
    log = StepLog(path)
    for step in steps:
        log.append({"step": step, "attempt": attempt, "samples": [8 * (step - 1), 8 * step - 1]})
    log.close()


def test_a_first_run_repeats_nothing(tmp_path: Path) -> None:
    found = resumption(tmp_path / "steps.jsonl", 0, 0)
    assert (found.attempt, found.repeated, found.skipped) == (1, 0, 0)


def test_steps_after_the_checkpoint_are_repeated(tmp_path: Path) -> None:
    write(tmp_path / "s", 1, range(1, 58))
    found = resumption(tmp_path / "s", 50, 400)
    assert (found.attempt, found.from_step, found.repeated, found.skipped) == (2, 50, 56, 0)


def test_a_position_too_far_on_skips_samples(tmp_path: Path) -> None:
    write(tmp_path / "s", 1, range(1, 51))
    assert resumption(tmp_path / "s", 50, 416).skipped == 16


def test_the_last_attempt_counts(tmp_path: Path) -> None:
    write(tmp_path / "s", 1, range(1, 58))
    write(tmp_path / "s", 2, range(51, 53))
    found = resumption(tmp_path / "s", 52, 416)
    assert (found.attempt, found.repeated, found.skipped) == (3, 0, 0)


def test_a_line_that_a_kill_cut_off_spoils_no_other(tmp_path: Path) -> None:
    write(tmp_path / "s", 1, range(1, 4))
    with (tmp_path / "s").open("a") as file:
        file.write('{"step": 4, "att')
    write(tmp_path / "s", 2, range(4, 6))
    assert [line["step"] for line in lines(tmp_path / "s")] == [1, 2, 3, 4, 5]
    assert all(json.loads(t) for t in (tmp_path / "s").read_text().splitlines() if not t.endswith("att"))
