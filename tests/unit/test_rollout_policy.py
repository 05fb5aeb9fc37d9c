"""What an environment may say of its rollout, and what batches and beginnings become of it."""

import datetime
from collections import Counter

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bedplate.decide.fold import NodeState, Status
from bedplate.decide.plan import make_plan, spread
from bedplate.model.environment import parse_environment
from bedplate.model.faults import BadInput
from bedplate.model.policy import Policy, nodes_of
from bedplate.model.window import DAYS, parse_window, why_closed
from unit.fleet_sample import node, nodes
from unit.site_sample import ENVIRONMENT
from unit.story import A

LINE = "rollout: {canary: 1, small: 2, batch: 4, failure_budget: 1}"


def policy(**given: object) -> Policy:
    return Policy(**({"canary": 1, "small": 2, "batch": 8, "failure_budget": 1} | given))  # type: ignore[arg-type]


def sizes(count: int, **given: object) -> list[int]:
    return make_plan(nodes(count, 5), {}, A, policy(**given)).sizes


HINT = '(days and hours, as "mon-fri 22:00-05:00" or "sat,sun 00:00-24:00")'


@pytest.mark.parametrize(
    ("said", "fault"),
    [
        ("growth: linar", "growth: found \"linar\" (one of: 'fixed', 'linear' or 'exponential')"),
        ("rack_limit: 0", "rack_limit: found the number 0, wanted at least 1"),
        ("soak_s: -1", "soak_s: found the number -1, wanted at least 0"),
        ("soak_s: 90000", "soak_s: found the number 90000, wanted at most 86400"),
        ("node_deadline_s: 5", "node_deadline_s: found the number 5, wanted at least 60"),
        ("timezone: 'a b'", 'timezone: "a b" is no time zone (as "UTC" or "Europe/Berlin")'),
        ("approvals: [rest, rest]", 'approvals: "rest" stands there twice (keep one)'),
        ("failed_node: ignore", "failed_node: found \"ignore\" (one of: 'leave', 'rollback' or 'replace')"),
        ("soak: 5", 'unknown key "soak" (did you mean "soak_s"?)'),
        ("windows: [nights]", f'windows[0]: "nights" is no maintenance window {HINT}'),
        (
            "windows: ['mon 05:00-05:00']",
            f'windows[0]: "mon 05:00-05:00" has no length: it begins at 05:00 and ends at 05:00 {HINT}',
        ),
        ("windows: ['mo-fri 05:00-06:00']", f'windows[0]: "mo" is no day of the week {HINT}'),
        ("windows: ['mon 25:00-26:00']", f'windows[0]: "25:00" is no time of day {HINT}'),
    ],
)
def test_a_fault_of_a_policy_is_told_with_its_line(said: str, fault: str) -> None:
    with pytest.raises(BadInput) as caught:
        parse_environment(ENVIRONMENT.replace(LINE, LINE[:-1] + f", {said}}}"), "A.yml")
    place = "rollout: " if fault.startswith("unknown") else "rollout."
    assert str(caught.value) == f"A.yml:28: {place}{fault}"


@pytest.mark.parametrize("size", ["0%", "101%", "5 %", "many", "-1", "1.5", "true", "[]"])
def test_what_is_no_size_of_a_batch_is_refused(size: str) -> None:
    with pytest.raises(BadInput, match=r"A.yml:28: rollout.batch: "):
        parse_environment(ENVIRONMENT.replace("batch: 4", f"batch: {size}"), "A.yml")


def test_all_that_a_policy_says_is_read_and_recorded() -> None:
    text = LINE[:-1] + (
        ", growth: linear, rack_limit: 2, power_limit: 3, soak_s: 600, windows: [sat 20:00-06:00], timezone:"
        " Europe/Berlin, approvals: [rest], failed_node: replace, node_deadline_s: 900,"
        " node_questions: [devices, exchange]}"
    )
    said = parse_environment(ENVIRONMENT.replace(LINE, text.replace("batch: 4", "batch: 10%")), "A.yml").policy
    assert said.as_dict() == {
        "canary": 1, "small": 2, "batch": "10%", "failure_budget": 1, "growth": "linear", "rack_limit": 2,
        "power_limit": 3, "soak_s": 600, "windows": ["sat 20:00-06:00"], "timezone": "Europe/Berlin",
        "approvals": ["rest"], "failed_node": "replace", "node_deadline_s": 900, "acceptance": "by-fleet",
        "node_questions": ["devices", "exchange"],
    }  # fmt: skip


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        ({}, [1, 2, 8, 8, 8, 3]),
        ({"growth": "linear"}, [1, 2, 4, 6, 8, 8, 1]),
        ({"growth": "exponential", "small": 1}, [1, 1, 2, 4, 8, 8, 6]),
        ({"batch": "50%"}, [1, 2, 15, 12]),
        ({"canary": "10%", "small": "20%", "batch": "1%"}, [3, 6, *[1] * 21]),
        ({"growth": "exponential", "batch": "20%"}, [1, 2, 4, 6, 6, 6, 5]),
    ],
)
def test_batches_are_fixed_or_grow(given: dict[str, object], expected: list[int]) -> None:
    assert sizes(30, **given) == expected


@given(st.integers(1, 100), st.integers(0, 10000))
def test_a_percentage_is_rounded_down_and_is_one_node_at_least(share: int, total: int) -> None:
    assert nodes_of(f"{share}%", total) == max(1, share * total // 100)


def test_no_batch_has_more_nodes_of_a_rack_or_a_power_domain_than_the_policy_says() -> None:
    fleet = nodes(40, 4)
    power = {"r00": "a", "r01": "a", "r02": "b", "r03": "b"}
    plan = make_plan(fleet, {}, A, policy(batch=20, rack_limit=2, power_limit=3), power=power)
    assert sorted(plan.nodes) == [n.name for n in fleet]
    rack = {n.name: n.rack for n in fleet}
    for batch in plan.batches:
        assert max(Counter(rack[name] for name in batch.nodes).values()) <= 2
        assert max(Counter(power[rack[name]] for name in batch.nodes).values()) <= 3
    assert max(plan.sizes) == 6, "three of each domain, not more"


def test_nodes_that_are_done_again_keep_the_limits_of_a_batch_too() -> None:
    """A rack of bad nodes boots together else: a feed that one batch of fresh nodes would not have tripped."""
    fleet = nodes(40, 4)
    power = {"r00": "a", "r01": "a", "r02": "b", "r03": "b"}
    rack = {n.name: n.rack for n in fleet}
    bad = {n.name: NodeState(status=Status.FAILED) for n in fleet if n.rack == "r00"}
    doubt = {n.name: NodeState(status=Status.IN_DOUBT) for n in fleet[:20] if n.rack == "r01"}
    limited = policy(batch=20, rack_limit=2, power_limit=3)
    plan = make_plan(fleet, bad | doubt, A, limited, power=power)
    assert sorted(plan.nodes) == [n.name for n in fleet]
    assert plan.batches[0].name == "recovery"
    assert {*plan.batches[0].nodes[:2]} <= doubt.keys(), "nodes in doubt first of all"
    for batch in plan.batches:
        assert max(Counter(rack[name] for name in batch.nodes).values()) <= 2, batch
        assert max(Counter(power[rack[name]] for name in batch.nodes).values()) <= 3, batch
        again = [name for name in batch.nodes if name in bad or name in doubt]
        assert (batch.name == "recovery") == bool(again)
        assert batch.name != "recovery" or len(batch.nodes) - len(again) == 1, "one fresh node goes with them"


def test_power_domains_take_turns_before_racks_do() -> None:
    fleet = [node(f"n{i}", rack=rack) for i, rack in enumerate(("r1", "r2", "r3", "r3"), 1)]
    assert spread(fleet, {"r1": "a", "r2": "a", "r3": "b"}) == ["n1", "n3", "n2", "n4"]
    assert spread(fleet) == ["n1", "n2", "n3", "n4"]


# --- maintenance windows --------------------------------------------------------------------------

MONDAY = datetime.datetime(2026, 11, 30, tzinfo=datetime.UTC)


@pytest.mark.parametrize(
    ("window", "at", "opens"),
    [
        ("mon-fri 22:00-05:00", (0, 21, 59), 1),
        ("mon-fri 22:00-05:00", (0, 22, 0), 0),
        ("mon-fri 22:00-05:00", (1, 4, 59), 0),
        ("mon-fri 22:00-05:00", (1, 5, 0), 17 * 60),
        ("mon-fri 22:00-05:00", (5, 4, 59), 0),  # Saturday's morning belongs to Friday's night
        ("mon-fri 22:00-05:00", (5, 22, 0), 48 * 60),
        ("mon-fri 22:00-05:00", (0, 4, 0), 18 * 60),  # Sunday night has none
        ("sun 22:00-05:00", (0, 4, 0), 0),  # the week's end
        ("sat,sun 00:00-24:00", (6, 23, 59), 0),
        ("fri-mon 10:00-11:00", (0, 10, 30), 0),  # over the week's end
        ("fri-mon 10:00-11:00", (1, 10, 30), 3 * 1440 - 30),
    ],
)
def test_a_window_holds_on_its_days_and_hours(window: str, at: tuple[int, int, int], opens: int) -> None:
    day, hour, minute = at
    assert parse_window(window).opens_in(MONDAY + datetime.timedelta(days=day, hours=hour, minutes=minute)) == opens


def test_what_may_not_begin_now_is_told_when_it_may() -> None:
    windows = [parse_window("sat 20:00-06:00"), parse_window("wed 12:00-13:00")]
    said = why_closed(windows, MONDAY)
    assert said == 'Mon 00:00 is in no maintenance window: "wed 12:00-13:00" opens Wed 02 Dec 12:00'
    assert why_closed(windows, MONDAY + datetime.timedelta(days=2, hours=12)) == ""
    assert why_closed([], MONDAY) == ""


@given(st.sampled_from(DAYS), st.integers(0, 1439), st.integers(1, 1440), st.integers(0, 7 * 1440 - 1))
def test_a_window_is_open_as_long_as_it_says(day: str, start: int, length: int, at: int) -> None:
    end = (start + length) % 1440
    if end == start and start:
        return
    said = f"{start // 60:02d}:{start % 60:02d}-" + ("24:00" if end == 0 else f"{end // 60:02d}:{end % 60:02d}")
    window = parse_window(f"{day} {said}")
    offset = (at - DAYS.index(day) * 1440 - start) % (7 * 1440)
    moment = MONDAY + datetime.timedelta(minutes=at)
    assert window.holds(moment) == (offset < length)
    assert window.holds(moment + datetime.timedelta(minutes=window.opens_in(moment)))
