"""From rows of single checks to one verdict a node: silence never passes."""

import json

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from bedplate.decide.verification import ERROR, FAIL, PASS, SKIP, UNREACHABLE, Row, judge_all, judge_node
from bedplate.model.event import body_bytes
from bedplate.observe.verify import read_report


def row(verdict: str, why: str = "", *, node: str = "n1", check: str = "packages", layer: str = "driver") -> Row:
    return Row(node, check, layer, verdict, why)


@pytest.mark.parametrize(
    ("rows", "verdict", "why"),
    [
        ([], ERROR, "no check gave a verdict"),
        ([row(SKIP, "unmanaged")], ERROR, "no check gave a verdict"),
        ([row(PASS)], PASS, ""),
        ([row(PASS), row(SKIP, "unmanaged")], PASS, ""),
        ([row(PASS), row(FAIL, "x is 2, lock says 1")], FAIL, "driver packages: x is 2, lock says 1"),
        ([row(FAIL, "a"), row(FAIL, "b", check="files", layer="config")], FAIL, "driver packages: a; config files: b"),
        ([row(PASS), row(ERROR, "KeyError")], ERROR, "driver packages: KeyError"),
        ([row(FAIL, "a"), row(ERROR, "b")], FAIL, "driver packages: a"),
        ([row(PASS), row("odd")], ERROR, "a check ended without a verdict"),
        ([row(PASS), row("pass")], ERROR, "a check ended without a verdict"),
        ([row(PASS), row(FAIL, "a"), row(UNREACHABLE, "no route")], UNREACHABLE, "no route"),
    ],
)
def test_the_verdict_of_a_node(rows: list[Row], verdict: str, why: str) -> None:
    found = judge_node("n1", "A", rows, {})
    assert (found.verdict, found.why) == (verdict, why)


def test_a_node_that_cannot_be_reached_is_one_row() -> None:
    found = judge_node("n1", "A", [row(UNREACHABLE, "no route", check=f"check {i}") for i in range(8)], {})
    assert found.rows == (row(UNREACHABLE, "no route", check="check 0"),)


def test_the_ledger_keeps_rows_and_facts() -> None:
    found = judge_node("n1", "A", [row(PASS)], {"packages": "sha256:1"})
    assert found.body() == {
        "environment": "A", "verdict": PASS, "why": "", "facts": {"packages": "sha256:1"},
        "checks": [{"check": "packages", "layer": "driver", "verdict": PASS, "why": ""}],
    }  # fmt: skip
    assert body_bytes(found.body())


def test_every_node_that_was_asked_for_has_a_verdict_and_no_other() -> None:
    rows = [row(PASS, node="n1"), row(PASS, node="n9")]
    found = judge_all({"n1": "A", "n2": "B"}, rows, {"n1": {"packages": "p"}, "n9": {}}, "pytest: killed")
    assert {name: (v.verdict, v.environment, v.why) for name, v in found.items()} == {
        "n1": (PASS, "A", ""), "n2": (ERROR, "B", "no result: pytest: killed"),
    }  # fmt: skip
    assert found["n1"].facts == {"packages": "p"}
    assert judge_all({"n2": "B"}, [], {})["n2"].verdict == ERROR


@settings(max_examples=100, deadline=None)
@given(st.lists(st.sampled_from([PASS, FAIL, ERROR, SKIP, UNREACHABLE, "", "odd"]), max_size=6))
def test_a_node_passes_only_when_something_passed_and_nothing_else_happened(verdicts: list[str]) -> None:
    passed = judge_node("n1", "A", [row(verdict) for verdict in verdicts], {}).verdict == PASS
    assert passed == (PASS in verdicts and set(verdicts) <= {PASS, SKIP})


# --- the report of the pytest process -------------------------------------------------------------

REPORT = [
    {"node": "n1", "facts": {"packages": "p"}},
    {"node": "n1", "check": "packages", "layer": "driver", "verdict": PASS, "why": ""},
    {"node": "n1", "check": "files", "layer": "config", "verdict": PASS, "why": ""},
    {"node": "n2", "check": "packages", "layer": "driver", "verdict": UNREACHABLE, "why": "no route"},
    {"node": "n2", "check": "files", "layer": "config", "verdict": UNREACHABLE, "why": "no route"},
    {"end": {"n1": 2, "n2": 2}},
]


def text(*entries: object) -> str:
    return "".join(json.dumps(entry) + "\n" for entry in entries)


def verdicts(report: str) -> dict[str, str]:
    rows, facts, whole = read_report(report)
    asked = {"n1": "A", "n2": "A"}
    judged = judge_all(asked, rows if whole else [], facts if whole else {}, "the report of pytest is cut")
    return {name: found.verdict for name, found in judged.items()}


def test_a_whole_report_is_judged() -> None:
    assert verdicts(text(*REPORT)) == {"n1": PASS, "n2": UNREACHABLE}
    assert read_report(text(*REPORT))[1] == {"n1": {"packages": "p"}}


@pytest.mark.parametrize("missing", [1, 2])
def test_a_check_that_was_collected_and_said_nothing_is_an_error(missing: int) -> None:
    report = text(*(entry for index, entry in enumerate(REPORT) if index != missing))
    assert verdicts(report) == {"n1": ERROR, "n2": UNREACHABLE}


def test_the_same_check_twice_does_not_stand_for_another() -> None:
    assert verdicts(text(*REPORT[:2], REPORT[1], *REPORT[3:]))["n1"] == ERROR


@settings(max_examples=60, deadline=None)
@given(st.integers(0, len(text(*REPORT)) - 2))
def test_a_report_that_is_cut_anywhere_passes_nobody(length: int) -> None:
    assert PASS not in verdicts(text(*REPORT)[:length]).values()
