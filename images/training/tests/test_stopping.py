"""When a run ends early."""

import signal

import pytest

from bedplate_train import stopping


def test_the_time_limit_leaves_room_for_a_step_and_a_save() -> None:
    limit = stopping.Deadline(100.0, 10.0, {"BEDPLATE_TRAIN_STARTED": "1000"})
    assert limit.end == 1100.0
    assert not limit.near(1089)
    assert limit.near(1091)
    limit.step_s = 20.0
    assert limit.near(1071)
    limit.save_s = 40.0
    assert limit.near(1001)


@pytest.mark.parametrize(
    ("given", "after", "end"),
    [
        ({"SLURM_JOB_END_TIME": "5000"}, None, 5000.0),
        ({"SLURM_JOB_END_TIME": "5000", "BEDPLATE_TRAIN_STARTED": "1000"}, 100.0, 1100.0),
        ({"SLURM_JOB_END_TIME": "1050", "BEDPLATE_TRAIN_STARTED": "1000"}, 100.0, 1050.0),
        ({"SLURM_JOB_END_TIME": "UNLIMITED"}, None, None),
        ({}, None, None),
    ],
)
def test_the_earlier_of_two_ends_counts(given: dict[str, str], after: float | None, end: float | None) -> None:
    assert stopping.Deadline(after, 0.0, given).end == end


def test_a_signal_asks_for_an_end_and_nothing_more() -> None:
    before = {number: signal.getsignal(number) for number in stopping.SIGNALS}
    try:
        stopping.listen()
        assert stopping.asked() == ""
        signal.raise_signal(signal.SIGUSR1)
        signal.raise_signal(signal.SIGTERM)
        assert stopping.asked() == "SIGUSR1"
    finally:
        stopping.forget()
        for number, handler in before.items():
            signal.signal(number, handler)
