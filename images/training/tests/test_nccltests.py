"""What nccl-tests print, read by the names of its columns; nothing else passes for a measurement."""

from collections.abc import Sequence

import pytest

from bedplate_train.accept import machine, nccltests
from bedplate_train.accept.profile import Exchange

SIZE = 8589934592
RANKS = "".join(
    f"#  Rank {n:2d} Group  0 Pid  41522 on     gpu001 device  {n} [0000:1b:00] NVIDIA B200\n" for n in range(8)
)
# Shape of nccl-tests 2.17.6 (src/common.cu, src/util.cu); the figures are made up.
TABLE = f"""\
# nccl-tests version 2.17.6 nccl-headers=22803 nccl-library=22803
# Collective test starting: all_reduce_perf
#
# Using devices
{RANKS}\
#
#                                                              out-of-place                       in-place
#       size         count      type   redop    root     time   algbw   busbw #wrong     time   algbw   busbw #wrong
#        (B)    (elements)                               (us)  (GB/s)  (GB/s)            (us)  (GB/s)  (GB/s)
gpu001:41522:41580 [0] NCCL INFO comm 0x55 rank 0 nRanks 8 nNodes 1 - Init COMPLETE
  {SIZE}    2147483648     float     sum      -1  18002.9  477.14  835.00      0  18102.9  470.00  822.50      0
# Out of bounds values : 0 OK
# Avg bus bandwidth    : 835.000
#
# Collective test concluded: all_reduce_perf
"""


def test_the_slower_of_both_ways_counts() -> None:
    found = nccltests.row(TABLE, SIZE, 8)
    assert found == {"bytes": SIZE, "seconds": pytest.approx(0.0181029), "bus_gb_per_s": 822.5, "right": True}


@pytest.mark.parametrize(
    ("was", "now"),
    [
        ("835.00      0", "835.00      3"),
        ("values : 0 OK", "values : 2 FAILED"),
        ("822.50      0", "822.50    N/A"),
    ],
)
def test_a_wrong_or_unchecked_sum_is_not_right(was: str, now: str) -> None:
    assert was in TABLE
    found = nccltests.row(TABLE.replace(was, now), SIZE, 8)
    assert not found["right"]
    assert machine.fast_enough([found], Exchange(sizes=(SIZE,), floor_gb_per_s=400.0, of_reference=0.9), None)


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("", "no table"),
        (TABLE.partition("# Out of bounds")[0], "no table"),
        (TABLE.replace("#  Rank  7", "#  Ronk  7"), "7 ranks, the profile has 8"),
        (TABLE.replace(f"  {SIZE} ", "  1024 "), "measured 1024 bytes"),
    ],
)
def test_anything_else_is_no_measurement(text: str, said: str) -> None:
    with pytest.raises(ValueError, match=said):
        nccltests.row(text, SIZE, 8)


def test_a_run_that_fails_says_why() -> None:
    def run(words: Sequence[str], limit_s: float) -> tuple[int, str]:
        return 3, "gpu001: Test NCCL failure common.cu:1000 'unhandled cuda error'"

    with pytest.raises(ValueError, match=r"ended with 3: .*unhandled cuda error"):
        nccltests.measured([SIZE], 8, 60.0, run)


def test_each_size_is_a_run() -> None:
    asked = []

    def run(words: Sequence[str], limit_s: float) -> tuple[int, str]:
        asked.append(words)
        return 0, TABLE.replace(str(SIZE), words[words.index("-b") + 1])

    found = nccltests.measured([1024, SIZE], 8, 60.0, run)
    assert [each["bytes"] for each in found] == [1024, SIZE]
    assert all(words[:3] == ["all_reduce_perf", "-g", "8"] for words in asked)
