"""What is told of a program that did not end as it should."""

from pathlib import Path

import pytest

from bedplate.process import TAIL_BYTES, ProcessFailed, run

HANGS = "echo 'TASK [reboot]'; echo 'a warning' >&2; exec sleep 60"


def test_a_program_that_does_not_end_is_told_with_what_it_had_said() -> None:
    with pytest.raises(ProcessFailed) as failed:
        run(["sh", "-c", HANGS], timeout_s=2)
    message = str(failed.value)
    assert message.startswith("no end after 2 s: TASK [reboot]\na warning\n  command: sh -c ")
    assert failed.value.finished.code == 124


def test_with_a_log_its_end_is_told(tmp_path: Path) -> None:
    with pytest.raises(ProcessFailed, match=r"TASK \[reboot\]\na warning"):
        run(["sh", "-c", HANGS], timeout_s=2, log=tmp_path / "log")


def test_of_much_that_was_said_the_end_is_told() -> None:
    with pytest.raises(ProcessFailed) as failed:
        run(["sh", "-c", "seq 100000 | tee /dev/stderr; exec sleep 60"], timeout_s=2)
    assert failed.value.finished.err.count("\n99999\n100000\n") == 2
    assert len(failed.value.finished.err) <= TAIL_BYTES
