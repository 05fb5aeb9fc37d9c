"""The order of Debian versions is dpkg's."""

import shutil
import subprocess

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from bedplate.model.versions import at_least, compare, numbers, parse_range, same, upstream

EPOCH = st.sampled_from(["", "0:", "1:", "5:", "10:"])
UPSTREAM = st.tuples(st.sampled_from("0123456789"), st.text("019aZ.+~", max_size=7)).map("".join)
REVISION = st.one_of(st.just(""), st.text("019az.+~", min_size=1, max_size=5).map(lambda text: f"-{text}"))
VERSION = st.tuples(EPOCH, UPSTREAM, REVISION).map("".join)


def dpkg(left: str, sign: str, right: str) -> bool:
    return subprocess.run(["dpkg", "--compare-versions", left, sign, right], check=False).returncode == 0


@pytest.mark.slow
@pytest.mark.skipif(shutil.which("dpkg") is None, reason="no dpkg here")
@settings(max_examples=300, deadline=None)
@given(VERSION, VERSION)
@example("1.0~rc1", "1.0")
@example("1.0~", "1.0~~")
@example("1.0-1", "1.0")
@example("1.0-0", "1.0")
@example("1:1.0", "2.0")
@example("1.0+b", "1.0.1")
@example("1.0a", "1.0+")
@example("580.126.09", "580.126.9")
@example("0:1-1", "1-1")
def test_the_order_of_versions_is_that_of_dpkg(left: str, right: str) -> None:
    order = compare(left, right)
    assert dpkg(left, {-1: "lt", 0: "eq", 1: "gt"}[order], right)
    assert compare(right, left) == -order


@pytest.mark.parametrize(
    ("version", "expected"),
    [("580.178.04-1ubuntu1", "580.178.04"), ("1:4.6.0-1", "4.6.0"), ("5:29.1.4-1~ubuntu.24.04~noble", "29.1.4"),
     ("580.178.04", "580.178.04"), ("6.8.0-85.85", "6.8.0")],
)  # fmt: skip
def test_the_upstream_version_has_no_epoch_and_no_revision(version: str, expected: str) -> None:
    assert upstream(version) == expected


def test_one_upstream_version_under_other_revisions_is_the_same() -> None:
    assert same("580.178.04", "580.178.04-1ubuntu1")
    assert same("580.126.09-1", "580.126.9-0ubuntu1")
    assert not same("580.178.04", "580.178.05")
    assert at_least("5:26.1.0-1", "26.1")
    assert not at_least("5:26.0.9-1", "26.1")


def test_the_first_numbers_of_a_version() -> None:
    assert numbers("26.05.3-1", 2) == (26, 5)
    assert numbers("26", 2) is None
    assert numbers("git1", 1) is None


@pytest.mark.parametrize(
    ("text", "inside", "outside"),
    [
        (">=570.133.20,<600", ["570.133.20-0ubuntu1", "580.178.04", "595.91.07"], ["570.133.19", "600", "610.57.04"]),
        ("=1.17.7", ["1.17.7-1"], ["1.17.8-1"]),
        (">4.7, <=4.7.4", ["4.7.1"], ["4.7", "4.7.5"]),
    ],
)
def test_a_range_holds_what_lies_between_its_bounds(text: str, inside: list[str], outside: list[str]) -> None:
    found = parse_range(text)
    assert found is not None
    assert [found.holds(version) for version in inside] == [True] * len(inside)
    assert [found.holds(version) for version in outside] == [False] * len(outside)


@pytest.mark.parametrize("text", ["", "570", ">=", ">=570,", "=>570", "~=1.0", ">=1 2"])
def test_what_is_no_range_is_none(text: str) -> None:
    assert parse_range(text) is None
