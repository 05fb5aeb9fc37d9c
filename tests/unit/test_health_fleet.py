"""`bedplate health` over real ssh, with the real agent on every node and stand-ins for its programs."""

import json
from collections.abc import Iterator
from pathlib import Path
from xml.etree import ElementTree

import pytest
from click.testing import CliRunner, Result

from bedplate.cli.health import health
from bedplate.decide.healthresult import ANSWERS, NoResult, read
from bedplate.model.event import WRITER
from bedplate.observe.health import COMMAND
from bedplate_agent.sinks import Result as NodeResult
from bedplate_agent.verdict import ERROR, FAIL, PASS
from unit.fleet_of_roots import NAMES, Fleet, fleet
from unit.health.standins import PROFILE, program, write_standins

pytestmark = pytest.mark.slow  # every test starts programs


@pytest.fixture
def nodes(tmp_path: Path) -> Iterator[Fleet]:
    with fleet(tmp_path) as made:
        (made.root / "models" / "lab-gpu8.health.yml").write_text(PROFILE)
        for name in NAMES:
            there = write_standins(made.roots[name])
            lock = made.roots[name] / "health.lock"
            own = f'{{"path": "{there}", "lock": "{lock}", "profile"'
            made.instead[name] = f"LC_ALL=C sed '$ s#{{\"profile\"#{own}#' | {COMMAND}"
        yield made


def run(made: Fleet, *words: str) -> Result:
    return CliRunner().invoke(health, ["--nodes", "n[1-3]", "--timeout", "300", *words], obj=made.root)


def rows(result: Result) -> list[dict[str, str]]:
    return [json.loads(line) for line in result.stdout.splitlines()]


def edit(made: Fleet, name: str, probe: str, old: str, new: str) -> None:
    path = made.roots[name] / "answers" / probe
    text = path.read_text()
    assert old in text
    path.write_text(text.replace(old, new, 1))


def test_healthy_nodes_pass_with_one_command_each_and_are_recorded(nodes: Fleet) -> None:
    result = run(nodes)
    assert result.exit_code == 0, (result.output, result.exception)
    assert sorted(nodes.commands) == [(name, COMMAND) for name in NAMES]
    assert "PASS: 3 of 3 nodes: n[1-3]" in result.stdout
    [event] = nodes.events("health.run")
    assert event.body["nodes"] == {PASS: "n[1-3]"}
    assert nodes.events("health.judged") == []
    assert nodes.world().nodes is not None, "the other commands read the ledger as before"


def test_a_fault_is_named_in_every_form(nodes: Fleet, tmp_path: Path) -> None:
    edit(nodes, "n2", "smi", "<remapped_row_pending>No", "<remapped_row_pending>Yes")
    files = ("--junit", str(tmp_path / "junit.xml"), "--prometheus", str(tmp_path / "health.prom"))
    result = run(nodes, "--json", *files)
    assert result.exit_code == 1
    assert "n2 failed" in str(result.exception)
    wrong = [row for row in rows(result) if row["verdict"] not in (PASS, "SKIP")]
    assert [(row["node"], row["check"], row["entity"], row["action"]) for row in wrong] == [
        ("n2", "gpu.remap_pending", "gpu0", "reset")
    ]
    suites = ElementTree.parse(tmp_path / "junit.xml").getroot()  # noqa: S314  our own
    assert {s.get("name"): (s.get("failures"), s.get("errors")) for s in suites} == {
        "n1": ("0", "0"), "n2": ("1", "0"), "n3": ("0", "0"),
    }  # fmt: skip
    metrics = (tmp_path / "health.prom").read_text()
    assert 'bedplate_health_status{node="n2",check="gpu.remap_pending"} 3\n' in metrics
    assert 'bedplate_health_status{node="n1",check="gpu.remap_pending"} 0\n' in metrics
    [event] = nodes.events("health.judged")
    assert event.subjects == ("node:n2",)
    assert event.body["reason"].startswith("HC:gpu.remap_pending:gpu0 ")
    assert len(WRITER.encode(event.body)) < 1000


def test_every_node_has_a_row_whatever_becomes_of_it(nodes: Fleet) -> None:
    nodes.instead["n1"] = "exit 127"
    nodes.instead["n2"] = "cat > /dev/null; echo all is well"
    nodes.instead["n3"] = "cat > /dev/null"
    result = run(nodes, "--json")
    assert result.exit_code == 1
    assert "nothing is known of n[1-3]" in str(result.exception)
    assert [(row["node"], row["check"], row["verdict"]) for row in rows(result)] == [
        (name, ANSWERS, ERROR) for name in NAMES
    ]
    assert "no python3 on the node" in rows(result)[0]["message"]
    assert {event.body["verdict"] for event in nodes.events("health.judged")} == {ERROR}


@pytest.mark.slow
def test_what_the_kernel_reported_before_a_time_was_dealt_with(nodes: Fleet) -> None:
    said = {"__REALTIME_TIMESTAMP": "1795000000000000", "MESSAGE": "NVRM: Xid (PCI:0000:1b:00): 48, DBE"}
    edit(nodes, "n1", "journal", "-- cursor", json.dumps(said) + "\n-- cursor")  # 2026-11-18T11:06:40Z
    assert "FAIL: 1 of 3 nodes: n1" in run(nodes).stdout
    assert "FAIL: 1 of 3 nodes: n1" in run(nodes, "--since", "2026-11-18T11:06:00Z").stdout
    assert "PASS: 3 of 3 nodes" in run(nodes, "--since", "2026-11-18T11:07Z").stdout


def test_a_node_without_a_profile_is_not_asked_and_is_no_pass(nodes: Fleet) -> None:
    (nodes.root / "models" / "lab-gpu8.health.yml").unlink()
    result = run(nodes, "--json")
    assert nodes.commands == []
    assert {row["verdict"] for row in rows(result)} == {ERROR}
    assert all("without one nothing is known to be healthy" in row["message"] for row in rows(result))


def test_what_was_recorded_is_judged_alike_without_the_nodes(nodes: Fleet, tmp_path: Path) -> None:
    edit(nodes, "n3", "nvlink_status", "53.125 GB/s", "<inactive>")
    first = run(nodes, "--json", "--record", str(tmp_path / "case"))
    again = CliRunner().invoke(health, ["--replay", str(tmp_path / "case"), "--json"], obj=nodes.root)

    def said(result: Result) -> list[tuple[str, str, str, str]]:
        return sorted((row["node"], row["check"], row["entity"], row["verdict"]) for row in rows(result))

    assert said(first) == said(again)
    assert ("n3", "nvlink.links", "gpu0", FAIL) in said(again)
    one = CliRunner().invoke(health, ["--replay", str(tmp_path / "case" / "n3")], obj=nodes.root)
    assert "1 of 18" not in one.stdout
    assert "17 of 18 links are up" in one.stdout


def test_a_program_that_is_not_there_is_no_pass(nodes: Fleet) -> None:
    (nodes.roots["n1"] / "bin" / "nvidia-smi").unlink()
    program(nodes.roots["n2"] / "bin" / "nvidia-smi", "#!/bin/sh\nexit 0\n")
    result = run(nodes)
    assert "ERROR: 2 of 3 nodes: n[1-2]" in result.stdout
    assert result.stdout.count("driver.responds") == 2


def test_a_folder_without_a_record_is_told(tmp_path: Path) -> None:
    result = CliRunner().invoke(health, ["--replay", str(tmp_path)], obj=tmp_path)
    assert "no record" in str(result.exception)


ANSWER = NodeResult("n1", PASS, ())
GOOD = {
    "schema": 1, "node": "n1", "verdict": PASS, "run": "r1", "environment": "A", "profile": "sha256:1", "boot_id": "b",
    "at": "", "ms": 5, "cpu_ms": 1,
    "findings": [{
        "verdict": PASS, "message": "", "entity": "", "value": "", "limit": "", "unit": "", "action": "", "remedy": "",
        "because": "", "check": "a.b",
    }],
}  # fmt: skip


def test_a_node_has_no_say_in_its_own_verdict() -> None:
    lied = {**GOOD, "findings": [{**GOOD["findings"][0], "verdict": FAIL}]}  # type: ignore[index]
    found, _ = read(json.dumps(lied).encode(), "n1", ["a.b"], "r1")
    assert found.verdict == FAIL


def test_a_check_that_was_silent_is_an_error() -> None:
    found, _ = read(json.dumps(GOOD).encode(), "n1", ["a.b", "a.c"], "r1")
    assert found.verdict == ERROR
    assert [(f.check, f.verdict) for f in found.findings] == [("a.b", PASS), ("a.c", ERROR)]


@pytest.mark.parametrize(
    ("change", "why"),
    [
        ({"node": "n2"}, "of node"), ({"run": "r0"}, "of run"), ({"schema": 2}, "schema"),
        ({"findings": {}}, "findings"),
        ({"findings": [{}]}, "another form"), ({"ms": "5"}, "damaged"),
        ({"findings": [{**GOOD["findings"][0], "verdict": "FINE"}]}, "no verdict"),  # type: ignore[index]
        ({"findings": [{**GOOD["findings"][0], "check": "x"}]}, "not asked"),  # type: ignore[index]
    ],
)  # fmt: skip
def test_an_answer_of_another_form_is_none(change: dict[str, object], why: str) -> None:
    with pytest.raises(NoResult, match=why):
        read(json.dumps({**GOOD, **change}).encode(), "n1", ["a.b"], "r1")


def test_an_answer_that_is_cut_is_none() -> None:
    data = json.dumps(GOOD).encode()
    for length in range(len(data)):
        with pytest.raises(NoResult):
            read(data[:length], "n1", ["a.b"], "r1")
