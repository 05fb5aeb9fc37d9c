"""Limits, profiles, sinks and the comparison with the fleet."""

import json
import re
from typing import Any
from xml.etree import ElementTree

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from bedplate.decide.healthexpect import expectation, of_node
from bedplate.decide.healthfleet import COMPARED, PEERS, compared
from bedplate.model.faults import BadInput
from bedplate.model.hardware import parse_model
from bedplate.model.healthprofile import parse_health_profile
from bedplate.sources import checkout
from bedplate.sources.site import open_site
from bedplate_agent.command import judged
from bedplate_agent.probe import Raw
from bedplate_agent.profile import Profile
from bedplate_agent.registry import every
from bedplate_agent.sinks import Result, junit, lines, prometheus, reason, rows, text, verdict_file
from bedplate_agent.verdict import ERROR, FAIL, PASS, REMEDIES, SKIP, WARN, Finding, worst
from unit.health.replays import replay, result

CHECKS = {check.id: check.expects for check in every()}
SITE = open_site(checkout.root() / "inventory")


@pytest.mark.parametrize(
    ("value", "verdict"),
    [(0, FAIL), (47.9, FAIL), (48, WARN), (51.9, WARN), (52, PASS), (64, PASS), (64.1, ERROR), (4260, ERROR),
     (float("nan"), ERROR), (float("inf"), ERROR), (float("-inf"), FAIL)],
)  # fmt: skip
def test_a_number_beyond_what_is_plausible_is_no_good_one(value: float, verdict: str) -> None:
    bounds = {"fail_below": "48", "warn_below": "52", "implausible_above": "64"}
    profile = Profile({"schema": 1, "expect": {}, "limits": {"x": bounds}, "skip": {}})
    assert profile.limits("x").hold(value).verdict == verdict


def test_a_node_that_said_nothing_or_skipped_everything_is_not_healthy() -> None:
    assert worst([]) == ERROR
    assert worst([Finding(SKIP, "")]) == ERROR
    assert worst([Finding(SKIP, ""), Finding(PASS, "")]) == PASS
    assert worst([Finding(PASS, ""), Finding(ERROR, ""), Finding(FAIL, "")]) == FAIL


def test_every_check_says_what_it_is_where_its_expectation_comes_from_and_what_to_do() -> None:
    known = set(replay("base-b200-595").raws) | {"mount:", "write:", "nvlsm_log"}
    for check in every():
        assert check.what.endswith("."), check.id
        assert len(check.what) <= 120, check.id
        assert check.source, check.id
        assert check.action in REMEDIES, check.id
        assert check.probes, check.id
        assert set(check.probes) <= known, check.id
        assert len(check.id) <= 24, "must fit into Slurm's reason beside part and run"


def test_the_example_site_says_everything_that_every_check_needs() -> None:
    for kind, entry in SITE.fleet.kinds.items():
        document = expectation(kind, SITE.model(entry.model), SITE.health_profile(entry.model), None, CHECKS)
        assert Profile(document).skipped("host.mounts") is None
    gpu = expectation("gpu", SITE.model("hgx-b200"), SITE.health_profile("hgx-b200"), None, CHECKS)
    assert gpu["expect"]["gpu.count"] == 8
    node = SITE.fleet.nodes["gpu007"]
    assert of_node(gpu, node)["expect"]["host.name"] == "gpu007"
    assert of_node(gpu, node)["sha256"] == gpu["sha256"], "a profile is the same for all nodes of a kind"


def test_what_nobody_says_is_a_fault_of_the_profile_and_no_skip() -> None:
    health = SITE.health_profile("hgx-b200")
    less = parse_health_profile("model: hgx-b200\n", "hgx-b200.health.yml")
    with pytest.raises(BadInput) as told:
        expectation("gpu", SITE.model("hgx-b200"), less, None, CHECKS)
    assert any("nvlink.links needs nvlink.links" in fault.found for fault in told.value.faults)
    assert len(told.value.faults) > 40
    laboratory = parse_health_profile("model: hgx-b200\nunsaid: a laboratory\n", "hgx-b200.health.yml")
    skipped = expectation("gpu", SITE.model("hgx-b200"), laboratory, None, CHECKS)["skip"]
    assert skipped["nvlink.links"] == "a laboratory"
    assert "gpu.count" not in skipped, "the hardware model says it"
    assert health.limits["nvlink.rate"].source


@pytest.mark.parametrize(
    ("wrong", "said"),
    [
        ("limits: {a: {fail_below: 53, source: x}}", "wanted text"),
        ("limits: {a: {fail_below: 'x', source: x}}", "no decimal number"),
        ("limits: {a: {fail_below: '5', warn_below: '4', source: x}}", "not in the order"),
        ("limits: {a: {unit: ms, source: x}}", "has no bound"),
        ("limits: {a: {fail_below: '5'}}", '"source" is missing'),
        ("limits: {a: {fail_below: '5', source: ''}}", "found no text"),
        ("expect: {a: {is: 5}}", '"source" is missing'),
        ("skip: {a: ''}", "found no text"),
        ("since: {a: {branch: 570}}", '"source" is missing'),
        ("floors: {}", "unknown key"),
    ],
)
def test_a_profile_that_is_wrong_says_where(wrong: str, said: str) -> None:
    with pytest.raises(BadInput) as told:
        parse_health_profile(f"model: m\n{wrong}\n", "m.health.yml", name="m")
    assert said in str(told.value)
    assert "m.health.yml:2" in str(told.value)


def test_a_skip_of_a_check_that_does_not_exist_is_told() -> None:
    model = parse_model("model: m\nvendor: v\ngpus: 0\nnics: 0\nstand_in: true\n", "m.yml")
    wrong = parse_health_profile("model: m\nskip: {gpu.cuont: typing error}\n", "m.health.yml")
    with pytest.raises(BadInput, match=r"gpu\.count"):
        expectation("gpu", model, wrong, None, CHECKS)


def test_every_limit_of_the_example_site_has_a_source_and_is_read_by_a_check() -> None:
    read = {name for names in CHECKS.values() for name in names}
    for model in SITE.health_profile_names():
        profile = SITE.health_profile(model)
        assert all(limit.source for limit in profile.limits.values())
        assert set(profile.limits) <= read, model


# --- sinks ----------------------------------------------------------------------------------------

TEXTS = st.text(max_size=300)
FINDINGS = st.builds(
    Finding, verdict=st.sampled_from((PASS, WARN, FAIL, ERROR, SKIP)), message=TEXTS, entity=TEXTS, value=TEXTS,
    check=st.sampled_from(sorted(CHECKS)),
)  # fmt: skip
RESULTS = st.builds(
    lambda node, findings: Result(node, worst(findings), tuple(findings), "0123456789abcdef"),
    st.text(max_size=80), st.lists(FINDINGS, max_size=6),
)  # fmt: skip


@settings(max_examples=50, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(RESULTS)
def test_a_reason_is_short_plain_and_begins_with_the_check(found: Result) -> None:
    said = reason(found)
    assert len(said) <= 60
    assert said.isascii()
    assert not set(said) & set("\"'=,;\n\t")
    if found.verdict in (FAIL, WARN):
        assert said.startswith("HC:")
        assert said.removeprefix("HC:").partition(":")[0].partition(" ")[0] in CHECKS


@settings(max_examples=50, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(st.lists(RESULTS, max_size=4))
def test_every_form_can_be_read_whatever_a_node_says(found: list[Result]) -> None:
    ElementTree.fromstring(junit(found))  # noqa: S314  our own
    for one in found:
        assert [json.loads(line)["node"] for line in lines(one).splitlines()] == [one.node] * len(one.findings)
        assert text(one)
        said = dict(line.split("=", 1) for line in verdict_file(one, 12).splitlines())
        assert said["verdict"] == one.verdict
        assert list(said)[-1] == "end"
    for line in prometheus(found, 1).splitlines():
        assert line.startswith(("# ", "bedplate_health_"))


def test_a_result_is_a_few_hundred_bytes_of_metrics() -> None:
    found = prometheus([result(replay("base-b200-580"))], 1795000000)
    assert 'bedplate_health_status{node="gpu001",check="nvlink.links"} 0\n' in found
    assert 'bedplate_health_value{node="gpu001",check="nccl.allreduce",entity=""} 835\n' in found
    assert 'bedplate_health_run_timestamp_seconds{node="gpu001"} 1795000000\n' in found


# --- the fleet ------------------------------------------------------------------------------------


def fleet(values: list[float], check: str = "nccl.allreduce", **more: Any) -> list[Result]:
    return [
        Result(f"n{i}", PASS, (Finding(PASS, "", value=f"{value:g}", check=check),), profile="p", **more)
        for i, value in enumerate(values)
    ]


def outliers(results: list[Result]) -> list[str]:
    return [r.node for r in compared(results) if r.verdict == WARN]


def test_one_that_is_slower_than_its_equals_is_named_even_above_the_floor() -> None:
    values = [835 + i % 5 for i in range(100)]
    found = compared(fleet([*values, 780.0]))
    assert [(r.node, r.findings[-1].check) for r in found if r.verdict != PASS] == [("n100", "fleet.nccl.allreduce")]
    assert "where the median of 101 equals is 837" in found[-1].findings[-1].message


@pytest.mark.parametrize("check", COMPARED)
@pytest.mark.parametrize("base", ["base-b200-595", "base-h100-535"])
def test_what_is_compared_has_a_number_on_a_healthy_node(check: str, base: str) -> None:
    found = [finding for finding in result(replay(base)).findings if finding.check == check]
    assert [finding.verdict for finding in found if finding.verdict != SKIP] in ([PASS], [])
    assert all(re.fullmatch(r"-?[0-9]+(\.[0-9]+)?", finding.value) for finding in found if finding.verdict == PASS)


def test_equals_that_differ_by_a_hair_are_no_outliers() -> None:
    assert outliers(fleet([835.0] * 99 + [830.0])) == []
    assert outliers(fleet([800 + 3 * (i % 20) for i in range(200)])) == []


def test_one_that_is_faster_is_no_outlier_and_few_peers_have_no_median() -> None:
    assert outliers(fleet([835.0] * 99 + [899.0])) == []
    assert outliers(fleet([835.0] * (PEERS - 2) + [400.0])) == []
    assert outliers(fleet([835.0] * (PEERS - 1) + [400.0])) == [f"n{PEERS - 1}"]


def test_nodes_of_different_profiles_are_not_compared() -> None:
    slow = [r._replace(profile="other") for r in fleet([400.0])]
    assert outliers([*fleet([835.0] * 99), *slow]) == []


@settings(max_examples=50, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(st.lists(st.floats(1, 1e6), min_size=PEERS, max_size=60))
def test_most_of_a_fleet_are_never_outliers(values: list[float]) -> None:
    assert len(outliers(fleet(values))) <= len(values) / 2


@pytest.mark.parametrize(
    ("probe", "check"), [("smi", "driver.responds"), ("topology", "nvlink.topology"), ("mount:/", "host.mounts")]
)
def test_a_node_without_a_processor_for_its_probes_is_unknown_and_not_bad(probe: str, check: str) -> None:
    record = replay("base-b200-580")
    short = Raw("short", code=-15, why="it had 0.1 of its 10 s when the time of the run was up")
    assert probe in record.raws
    found = judged({**record.raws, probe: short}, record.profile, ["passive"], "r")
    assert found.verdict == ERROR
    ((verdict, _, told, *_),) = rows([found])
    assert (verdict, told) == (ERROR, check), "told once, and not kept back for another check that passes"
