"""Changed nodes are asked how they are: before they return, until they are well, and once more after the soak."""

from collections.abc import Callable, Mapping
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from ansible.plugins.action import ActionBase

from bedplate.act import rollout
from bedplate.decide.healthresult import lost
from bedplate.decide.verification import Row, Verification, judge_node
from bedplate.doors import healthy, soak
from bedplate.doors import site as site_door
from bedplate.model.faults import Refused
from bedplate.sources.site import Site, open_site
from bedplate_agent.sinks import Result
from bedplate_agent.verdict import ERROR, FAIL, PASS, WARN, Finding
from unit.site_sample import write_site


@pytest.fixture
def site(tmp_path: Path) -> Site:
    return open_site(write_site(tmp_path / "site"))


def result(node: str, verdict: str, said: str = "") -> Result:
    return Result(node, verdict, (Finding(verdict, said, check="gpu.remap_pending", entity="gpu3"),), "run")


class Nodes:
    """Looks at nodes, each the next of what is said of it; the last one again and again."""

    def __init__(self, **said: list[Result]) -> None:
        self.said, self.looked = said, list[dict[str, str]]()

    def __call__(self, site: Site, under: Mapping[str, str]) -> dict[str, Result]:  # noqa: ARG002
        self.looked.append(dict(under))
        return {name: self.said[name].pop(0) if len(self.said[name]) > 1 else self.said[name][0] for name in under}


class Clock:
    """Passes only while somebody sleeps."""

    def __init__(self) -> None:
        self.now = 0.0

    def monotonic(self) -> float:
        return self.now

    def sleep(self, seconds: float) -> None:
        self.now += seconds


def asked(site: Site, nodes: Nodes, monkeypatch: pytest.MonkeyPatch, patience_s: str = "600") -> dict[str, Any]:
    monkeypatch.setattr(healthy, "look", nodes)
    monkeypatch.setattr(healthy, "time", Clock())
    monkeypatch.setattr(site_door, "current", lambda: site)
    task = SimpleNamespace(
        args={"environment": "A", "patience_s": patience_s}, async_val=0, check_mode=False, action="x"
    )
    action = healthy.ActionModule(task, None, SimpleNamespace(), None, None, None)
    monkeypatch.setattr(ActionBase, "run", lambda *_, **__: {})
    return action.run(task_vars={"inventory_hostname": "n1"})


def test_a_node_that_is_well_is_asked_once_and_held_against_the_target(
    site: Site, monkeypatch: pytest.MonkeyPatch
) -> None:
    nodes = Nodes(n1=[result("n1", PASS)])
    assert asked(site, nodes, monkeypatch) == {"changed": False, "looks": 1, "verdict": PASS}
    assert nodes.looked == [{"n1": "A"}]


def test_what_takes_its_time_after_a_boot_is_waited_for(site: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    nodes = Nodes(
        n1=[result("n1", FAIL, "fabric in progress"), result("n1", ERROR, "no clock"), result("n1", WARN, "hot")]
    )
    told = asked(site, nodes, monkeypatch)
    assert "failed" not in told
    assert (told["looks"], told["verdict"]) == (3, WARN)
    assert told["bedplate_told"]["kind"] == "health.judged", "a warning is recorded"
    assert told["bedplate_told"]["body"]["verdict"] == WARN


@pytest.mark.parametrize("verdict", [FAIL, ERROR])
def test_what_is_bad_or_unknown_to_the_end_fails_the_node(
    verdict: str, site: Site, monkeypatch: pytest.MonkeyPatch
) -> None:
    told = asked(site, Nodes(n1=[result("n1", verdict, "a row waits")]), monkeypatch, patience_s="60")
    assert told["failed"]
    assert told["msg"] == (
        f"n1 is {verdict}: gpu.remap_pending gpu3 a row waits (after 5 looks in 60 s); look: bedplate health --nodes n1"
    )
    assert told["bedplate_told"]["body"]["reason"].startswith("HC:gpu.remap_pending:gpu3")


def test_a_site_that_may_not_be_asked_fails_the_node(site: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    def refused(site: Site, under: Mapping[str, str]) -> dict[str, Result]:
        raise Refused("an example")

    nodes = Nodes()
    monkeypatch.setattr(nodes.__class__, "__call__", lambda _, *words: refused(*words))
    assert asked(site, nodes, monkeypatch) == {"changed": False, "failed": True, "msg": "an example"}


# --- after the soak -------------------------------------------------------------------------------


def soaked(
    site: Site, nodes: Nodes, monkeypatch: pytest.MonkeyPatch, *, asks: bool = True, bad: tuple[str, ...] = ()
) -> dict[str, dict[str, Any]]:
    def verified(site: Site, asked: Mapping[str, str]) -> dict[str, Verification]:
        rows = {node: [Row(node, "x", "driver", FAIL if node in bad else PASS, "other")] for node in asked}
        return {node: judge_node(node, name, rows[node], {"files": "sha256:1"}) for node, name in asked.items()}

    monkeypatch.setattr(soak, "verify", verified)
    monkeypatch.setattr(soak, "look", nodes)
    monkeypatch.setattr(soak, "time", Clock())
    monkeypatch.setattr(rollout, "asks_health", lambda *_: asks)
    session = SimpleNamespace(site=site, lock=SimpleNamespace(name="A"), refuse_other_lock=lambda: None)
    return soak.look_again(session, ["n1", "n2", "n3"])  # type: ignore[arg-type]


def test_after_the_soak_a_node_is_good_when_its_lock_and_its_health_are(
    site: Site, monkeypatch: pytest.MonkeyPatch
) -> None:
    nodes = Nodes(
        n1=[result("n1", PASS)], n2=[result("n2", FAIL, "a row waits")],
        n3=[result("n3", ERROR, "no time"), result("n3", PASS)],
    )  # fmt: skip
    said = soaked(site, nodes, monkeypatch)
    assert {node: body["verdict"] for node, body in said.items()} == {"n1": "PASS", "n2": "FAIL", "n3": "PASS"}
    assert said["n2"]["why"] == "health: n2 is FAIL: gpu.remap_pending gpu3 a row waits"
    assert said["n2"]["health"]["verdict"] == FAIL
    assert said["n2"]["facts"] == {"files": "sha256:1"}, "what was compared stands beside it"
    assert nodes.looked == [{"n1": "A", "n2": "A", "n3": "A"}, {"n2": "A", "n3": "A"}], "a bad one is asked twice"


def test_a_node_of_which_nothing_is_known_after_the_soak_is_an_error(
    site: Site, monkeypatch: pytest.MonkeyPatch
) -> None:
    fine = [result("n1", PASS)]
    said = soaked(site, Nodes(n1=fine, n2=[lost("n2", "no answer")], n3=fine), monkeypatch, bad=("n3",))
    assert (said["n2"]["verdict"], said["n3"]["verdict"]) == ("ERROR", "FAIL")
    assert said["n2"]["why"] == "health: n2 is ERROR: node.answers no answer"
    assert "health" not in said["n3"], "what differs from its lock is not asked further"


def test_where_nodes_do_not_look_at_themselves_nobody_is_asked(site: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    nodes = Nodes()
    said = soaked(site, nodes, monkeypatch, asks=False)
    assert {body["verdict"] for body in said.values()} == {"PASS"}
    assert nodes.looked == []


class Scontrol:
    """Stands in for act/slurm.py: which nodes it is asked to drain, and what it says."""

    def __init__(self, **left: str) -> None:
        self.left, self.asked = left, list[Mapping[str, str]]()

    def drain(self, reasons: Mapping[str, str]) -> dict[str, str]:
        self.asked.append(reasons)
        return {name: self.left.get(name, "") for name in reasons}


def bodies(**verdicts: str) -> dict[str, dict[str, Any]]:
    return {name: {"verdict": word, "why": "" if word == PASS else "a row waits"} for name, word in verdicts.items()}


def drained(
    site: Site, monkeypatch: pytest.MonkeyPatch, scontrol: Callable[..., Any], *, inside: bool = True
) -> dict[str, dict[str, Any]]:
    monkeypatch.setattr(soak, "slurm_of", scontrol)
    monkeypatch.setattr(rollout, "in_slurm", lambda *_: inside)
    said = bodies(n1=PASS, n2=FAIL, n3=ERROR, n4=FAIL)
    session = SimpleNamespace(site=site, lock=SimpleNamespace(name="A"), drain_reason="bedplate: rollout 7 to A")
    soak.drain(session, said)  # type: ignore[arg-type]
    return said


def test_a_node_that_fails_after_its_soak_gets_no_more_jobs(site: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    """It was given back before; one of which nothing is known is left, as the fault may be the controller's."""
    scontrol = Scontrol(n4="somebody else's reason stands there by now")
    said = drained(site, monkeypatch, lambda *_: scontrol)
    assert scontrol.asked == [dict.fromkeys(("n2", "n4"), "bedplate: rollout 7 to A")]
    assert said["n2"] == {"verdict": FAIL, "why": "a row waits", "drained": True}
    assert said["n4"]["why"] == "a row waits; not drained: somebody else's reason stands there by now"
    assert said["n4"]["drained"] is False
    assert said["n1"] | said["n3"] == bodies(n3=ERROR)["n3"], "neither of them is drained"


def test_a_slurm_that_does_not_answer_after_a_soak_hides_nothing(site: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    def gone(*_: object) -> Scontrol:
        raise Refused("slurmctld on ctl does not answer")

    said = drained(site, monkeypatch, gone)
    assert said["n2"]["why"] == "a row waits; not drained: slurmctld on ctl does not answer"
    assert said["n2"]["drained"] is False


def test_a_node_that_gets_no_jobs_is_not_drained_after_its_soak(site: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    scontrol = Scontrol()
    said = drained(site, monkeypatch, lambda *_: scontrol, inside=False)
    assert scontrol.asked == []
    assert said == bodies(n1=PASS, n2=FAIL, n3=ERROR, n4=FAIL)


@pytest.mark.parametrize("fault", [OSError(28, "No space left on device"), Refused("an example"), KeyError("n2")])
def test_whatever_keeps_a_batch_from_being_asked_after_its_soak_counts_for_that_batch(
    monkeypatch: pytest.MonkeyPatch, fault: Exception
) -> None:
    """A task that fails fails the batch that is about to begin, and the one before it stays good in the record."""

    def looked(*_: object) -> dict[str, dict[str, Any]]:
        raise fault

    session = SimpleNamespace(lock=SimpleNamespace(name="A"), soak=rollout.Soak(0.0, ("n1", "n2")))
    monkeypatch.setattr(rollout, "current", session)
    monkeypatch.setattr(soak, "look_again", looked)
    monkeypatch.setattr(ActionBase, "run", lambda *_, **__: {})
    task = SimpleNamespace(args={}, async_val=0, check_mode=False, action="x")
    said = soak.ActionModule(task, None, SimpleNamespace(), None, None, None).run(task_vars={})
    assert "failed" not in said
    assert {node: body["verdict"] for node, body in said["bedplate_soaked"].items()} == {"n1": "ERROR", "n2": "ERROR"}
