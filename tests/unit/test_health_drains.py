"""The controller's decision: who is drained, who returns, when nothing more is drained; over 660 simulated nodes."""

from collections.abc import Iterable, Mapping

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from bedplate.decide.healthdrain import DRAIN, FRESH_S, TELL, UNDRAIN, WINDOW_S, Step, Watch, decide, most
from bedplate_agent.sinks import PREFIX, Result
from bedplate_agent.verdict import ERROR, FAIL, PASS, WARN, Finding

FLEET = 660
NAMES = [f"gpu{number:03d}" for number in range(1, FLEET + 1)]


def result(node: str, verdict: str, check: str = "gpu.count", run: str = "r1") -> Result:
    return Result(node, verdict, (Finding(verdict, "it is so", check=check),), run)


def step(
    state: Watch, results: Iterable[Result], *, now_s: int = 1000, drained: Mapping[str, str] | None = None,
    fleet: int = FLEET,
) -> Step:  # fmt: skip
    timed = [(now_s, one) for one in results]
    return decide(state, now_s=now_s, fleet=fleet, results=timed, drained=drained or {})


def done(found: Step, what: str) -> list[str]:
    return [action.node for action in found.actions if action.what == what]


def test_a_node_that_fails_is_drained_with_our_reason_and_the_check_first() -> None:
    found = step(Watch(), [result("gpu007", FAIL), result("gpu008", PASS), result("gpu009", WARN)])
    [action] = found.actions
    assert (action.what, action.node, action.reason) == (DRAIN, "gpu007", "HC:gpu.count r1")


def test_a_node_of_which_nothing_is_known_is_told_once_and_keeps_its_jobs() -> None:
    found = step(Watch(), [result("gpu007", ERROR)])
    assert done(found, DRAIN) == []
    assert "gpu007" in found.actions[0].reason
    assert step(found.state, [result("gpu007", ERROR)], now_s=1300).actions == ()


def test_stalls_that_come_and_go_neither_drain_nor_return_a_node() -> None:
    """Stalls of ps and of NFS made nodes flap between drained and resumed (mej/nhc#95)."""
    state = Watch()
    for turn, verdict in enumerate([PASS, ERROR] * 6):
        found = step(state, [result("gpu007", verdict, run=f"r{turn}")], now_s=1000 + 300 * turn)
        assert [action.what for action in found.actions if action.what != TELL] == []
        state = found.state


def test_a_node_returns_after_it_passed_everything_in_a_later_run() -> None:
    first = step(Watch(), [result("gpu007", FAIL)])
    drained = {"gpu007": first.actions[0].reason}
    same = step(first.state, [result("gpu007", PASS)], now_s=1100, drained=drained)
    assert same.actions == ()
    error = step(first.state, [result("gpu007", ERROR, run="r2")], now_s=1100, drained=drained)
    assert done(error, UNDRAIN) == []
    passed = step(first.state, [result("gpu007", PASS, run="r2")], now_s=1100, drained=drained)
    assert done(passed, UNDRAIN) == ["gpu007"]


def test_what_others_drained_is_never_touched() -> None:
    drained = {"gpu001": "memory swap, Ann", "gpu002": "Not responding", "gpu003": "hc:gpu.count"}
    for verdict in (PASS, FAIL):
        found = step(Watch(), [result(node, verdict, run="r9") for node in drained], drained=drained)
        assert [action for action in found.actions if action.what != TELL] == []


def test_four_of_eight_that_fail_at_once_trip_the_breaker_and_none_is_drained() -> None:
    found = step(Watch(), [result(f"n{i}", FAIL if i <= 4 else PASS) for i in range(1, 9)], fleet=8)
    assert done(found, DRAIN) == []
    [action] = found.actions
    assert action.what == TELL
    assert action.reason.startswith("gpu.count newly fails on 4 nodes within 10 minutes: n[1-4]")


def test_five_percent_of_660_trip_it_and_nothing_is_drained_until_a_person_looked() -> None:
    bad = NAMES[:33]
    found = step(Watch(), [result(node, FAIL if node in bad else PASS) for node in NAMES])
    assert [action.what for action in found.actions] == [TELL]
    later = step(found.state, [result("gpu600", FAIL, "ib.state")], now_s=90000)
    assert done(later, DRAIN) == []
    looked = step(found.state.reset(), [result("gpu600", FAIL, "ib.state")], now_s=90000)
    assert done(looked, DRAIN) == ["gpu600"]


def test_three_at_once_are_drained_and_a_fourth_in_a_small_fleet_is_not() -> None:
    found = step(Watch(), [result(f"n{i}", FAIL) for i in (1, 2, 3)], fleet=8)
    assert done(found, DRAIN) == ["n1", "n2", "n3"]
    drained = {action.node: action.reason for action in found.actions}
    fourth = step(found.state, [result("n4", FAIL)], now_s=1000 + WINDOW_S, fleet=8, drained=drained)
    assert done(fourth, DRAIN) == []
    later = step(found.state, [result("n4", FAIL)], now_s=1001 + WINDOW_S, fleet=8, drained=drained)
    assert done(later, DRAIN) == ["n4"]


def test_an_old_result_decides_nothing() -> None:
    old = decide(
        Watch(), now_s=10_000, fleet=8, results=[(10_000 - FRESH_S - 1, result("n1", FAIL))], drained={}
    )  # fmt: skip
    assert old.actions == ()


CHECKS = ("gpu.count", "ib.state", "host.time")
EVENTS = st.lists(
    st.tuples(
        st.integers(0, 400),  # seconds later
        st.lists(
            st.tuples(st.integers(0, FLEET - 1), st.sampled_from((PASS, WARN, FAIL, ERROR)), st.sampled_from(CHECKS)),
            max_size=25, unique_by=lambda one: one[0],
        ),
    ),
    max_size=12,
)  # fmt: skip


@pytest.mark.slow
@settings(max_examples=100, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(events=EVENTS, foreign=st.sets(st.integers(0, FLEET - 1), max_size=20))
def test_whatever_happens_the_invariants_hold(
    events: list[tuple[int, list[tuple[int, str, str]]]], foreign: set[int]
) -> None:
    state, now_s = Watch(), 0
    others = {NAMES[number]: "kernel test, Bob" for number in foreign}
    ours: dict[str, str] = {}
    newly: dict[str, list[tuple[int, str]]] = {}  # check -> (when, node) of each drain of ours
    for number, (later, rows) in enumerate(events):
        now_s += later
        results = [result(NAMES[node], verdict, check, f"run{number}") for node, verdict, check in rows]
        verdicts = {one.node: one for one in results}
        was_tripped = bool(state.tripped)
        found = step(state, results, now_s=now_s, drained={**others, **ours})
        drains, returns = done(found, DRAIN), done(found, UNDRAIN)
        assert not (was_tripped and drains), "tripped, and yet it drains"
        assert not (set(drains) | set(returns)) & others.keys(), "touches what others drained"
        assert set(returns) <= ours.keys()
        assert all(verdicts[node].verdict == FAIL for node in drains)
        assert all(verdicts[node].verdict in (PASS, WARN) for node in returns)
        for action in found.actions:
            if action.what == DRAIN:
                assert action.reason.startswith(PREFIX)
                assert len(action.reason) <= 60
                newly.setdefault(verdicts[action.node].findings[0].check, []).append((now_s, action.node))
                ours[action.node] = action.reason
            elif action.what == UNDRAIN:
                del ours[action.node]
        for check, drained in newly.items():
            recent = {node for at, node in drained if now_s - at <= WINDOW_S}
            assert len(recent) <= most(FLEET), f"{check}: more drains than the breaker allows"
        state = found.state


def test_the_breaker_allows_more_in_a_larger_fleet() -> None:
    assert [most(fleet) for fleet in (1, 8, 150, 200, 660, 10_000)] == [3, 3, 3, 4, 13, 200]
