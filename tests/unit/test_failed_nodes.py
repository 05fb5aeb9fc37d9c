"""What becomes of nodes that a rollout left behind: by the policy's word, after its end, and said if it cannot be."""

import signal
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from bedplate.act.rollout import Order, Readiness, next_for
from bedplate.cli import exchange, failednodes, rollout
from bedplate.cli.failednodes import Amended, Interrupted, amend_all
from bedplate.decide.equality import Return
from bedplate.decide.failednodes import LEAVE, REPLACE, ROLL_BACK, Step, next_steps, promise
from bedplate.decide.fold import NodeState, Status, World
from bedplate.decide.nodeswap import asked_environment
from bedplate.decide.plan import Batch, Plan
from bedplate.decide.slurmnodes import SlurmNode
from bedplate.model.faults import Refused
from bedplate.model.fleet import Fleet, parse_fleet
from bedplate.model.nodes import expand
from bedplate.model.policy import Policy
from bedplate.sources.site import Site, open_site
from unit.lock_sample import parsed
from unit.site_sample import FLEET, NODES, write_site
from unit.story import A, B

POLICY = Policy(1, 2, 4, 1)
SPARES = ("n7", "n8")
RUNS_A, RUNS_B = NodeState(Status.VERIFIED, runs=A, target=A), NodeState(Status.VERIFIED, runs=B, previous=A, target=B)
FAILED = NodeState(Status.FAILED, runs=A, target=B, drained=True)  # on its way from A to B
THERE = dict.fromkeys(("n3", "n4", "n5", "n6", "n8"), RUNS_B) | {"n7": RUNS_A}


def world(**states: NodeState) -> World:
    return World({**THERE, **states}, {}, {A: "A", B: "B"}, 0)


def fleet() -> Fleet:
    return parse_fleet(FLEET, NODES, fleet_file="fleet.yml", csv_file="nodes.csv")


def said(word: str, there: World, *bad: str) -> list[str]:
    return [str(step) for step in next_steps(replace(POLICY, failed_node=word), there, fleet(), bad, SPARES)]


def test_a_failed_node_is_left_and_tried_first() -> None:
    there = world(n1=FAILED, n2=replace(FAILED, status=Status.UNREACHABLE))
    assert said(LEAVE, there, "n2", "n1") == ["n[1-2] stay drained; the same command tries again, first of all"]
    assert said(LEAVE, there) == said(ROLL_BACK, there) == said(REPLACE, there) == []


def test_a_failed_node_goes_back_to_what_it_ran_and_to_nothing_else() -> None:
    there = world(
        n1=FAILED, n2=replace(FAILED, status=Status.RESCUED),
        n3=NodeState(Status.FAILED, target=B, drained=True),  # never ran anything
        n4=NodeState(Status.FAILED, runs=B, previous=A, target=B, drained=True),  # ran the target: a recheck failed
        n5=replace(FAILED, status=Status.UNREACHABLE), n6=replace(FAILED, status=Status.IN_DOUBT),
    )  # fmt: skip
    assert said(ROLL_BACK, there, "n1", "n2", "n3", "n4", "n5", "n6") == [
        "bedplate rollback A --nodes 'n[1-2]'",
        "n[3-4] stay drained; no other environment was there before: nothing to roll back to",
        "n[5-6] stay drained; the same command tries again, first of all",
    ]


SOAKED = NodeState(Status.FAILED, runs=B, previous=A, target=B, step="verification", drained=True)


def test_a_node_that_is_not_drained_is_not_called_so() -> None:
    """One that failed before its drain, or that nobody could drain after its soak, may have jobs."""
    there = world(n1=replace(SOAKED, drained=False), n2=FAILED, n3=replace(FAILED, drained=False))
    open_still = (
        "n[1,3] are NOT drained by this rollout (by hand: scontrol update nodename=n[1,3] state=drain reason=TEXT);"
        " the same command tries again, first of all"
    )
    assert said(LEAVE, there, "n1", "n2", "n3") == [
        "n2 stays drained; the same command tries again, first of all", open_still,
    ]  # fmt: skip
    assert said(LEAVE, there, "n1")[0].startswith("n1 is NOT drained by this rollout")


def test_a_node_that_fails_after_its_soak_goes_back_to_what_it_ran_before_its_batch() -> None:
    there = world(n1=SOAKED, n2=SOAKED)
    before = replace(there, before={"n1": RUNS_A, "n2": RUNS_B})
    assert said(ROLL_BACK, before, "n1", "n2") == [
        "bedplate rollback A --nodes 'n1'",
        "n2 stays drained; no other environment was there before: nothing to roll back to",
    ], "n2 ran B before it, and A in other days"  # fmt: skip


def test_a_spare_is_one_that_runs_what_the_neighbours_run() -> None:
    word = "--approved-by NAME --reason TEXT"
    one, two = world(n1=FAILED), world(n1=FAILED, n2=FAILED)
    assert said(REPLACE, one, "n1") == [f"bedplate node replace n1 n8 {word}"]
    assert said(REPLACE, two, "n1", "n2")[1] == ("n2 stays drained; no spare is left that runs what the neighbours run")
    before = world(n1=FAILED, **dict.fromkeys(("n2", "n3", "n4", "n5", "n6", "n8"), RUNS_A))
    assert said(REPLACE, before, "n1") == [f"bedplate node replace n1 n7 {word}"], "the rollout stopped at the canary"
    assert "no spare is left" in said(REPLACE, world(n7=FAILED, n8=FAILED), "n7")[0], "a spare is replaced by none"


def test_a_spare_of_another_kind_takes_no_place_and_keeps_its_own() -> None:
    """It would be refused, and the one that fits would not be tried."""
    there = world(n1=FAILED, ctl=RUNS_B)
    [step] = next_steps(replace(POLICY, failed_node=REPLACE), there, fleet(), ["n1"], ["ctl", "n8"])
    assert (step.do, step.spare) == (REPLACE, "n8")


def test_the_place_of_a_node_that_was_lost_on_the_way_asks_for_what_its_neighbours_run() -> None:
    assert asked_environment(fleet(), world(n1=FAILED), "n1") == B
    drained = NodeState(Status.FAILED, runs=A, target=A, step="verification")
    assert asked_environment(fleet(), world(n1=drained), "n1") == A, "a node that was lost at work: its own"
    alone = World({"n1": FAILED}, {}, {A: "A", B: "B"}, 0)
    assert asked_environment(fleet(), alone, "n1") == A


def test_a_plan_says_what_will_become_of_failed_nodes() -> None:
    assert promise(POLICY, None) == "a node that fails stays drained"
    assert "is rolled back to what it ran" in promise(replace(POLICY, failed_node=ROLL_BACK), None)
    assert promise(replace(POLICY, failed_node=REPLACE), "ann").endswith("on the word of ann")
    assert "by hand" in promise(replace(POLICY, failed_node=REPLACE), None)


# --- doing it -------------------------------------------------------------------------------------


@pytest.fixture
def a_site(tmp_path: Path) -> Site:
    return open_site(write_site(tmp_path / "site"))


BACK = Step(ROLL_BACK, ("n1", "n2"), environment="A")
SWAP = Step(REPLACE, ("n1",), spare="n8")


def amended(site: Site, *steps: Step, back: failednodes.Back, approved_by: str | None = None) -> list[str]:
    return [str(each) for each in amend_all(site, steps, back=back, approved_by=approved_by, environment="B")]


def never(environment: str, nodes: tuple[str, ...]) -> bool:
    raise AssertionError((environment, nodes))


def test_nodes_are_rolled_back_and_what_could_not_be_is_said(a_site: Site) -> None:
    asked: list[tuple[str, tuple[str, ...]]] = []

    def back(environment: str, nodes: tuple[str, ...]) -> bool:
        asked.append((environment, nodes))
        return len(asked) == 1

    assert amended(a_site, BACK, back=back) == ["n[1-2]: rolled back to A"]
    assert asked == [("A", ("n1", "n2"))]
    line = "NOT done: bedplate rollback A --nodes 'n[1-2]': "
    assert amended(a_site, BACK, back=back) == [f"{line}not all of them run A now"]

    def refused(environment: str, nodes: tuple[str, ...]) -> bool:
        raise Refused("the archive lacks libc6")

    assert amended(a_site, BACK, SWAP, back=refused) == [f"{line}the archive lacks libc6", f"next: {SWAP}"], (
        "one that cannot be done keeps nobody from the next"
    )


def test_after_an_interrupt_nothing_more_is_begun(a_site: Site) -> None:
    asked: list[str] = []

    def interrupted(environment: str, nodes: tuple[str, ...]) -> bool:
        asked.append(environment)
        raise Interrupted("interrupted: the batch in flight is in doubt")

    other = Step(ROLL_BACK, ("n3",), environment="Z")
    first, second = amended(a_site, BACK, other, back=interrupted)
    assert asked == ["A"]
    assert first.endswith("interrupted: the batch in flight is in doubt")
    assert second == f"next: {other}"


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
def test_an_interrupt_while_a_way_back_is_planned_ends_the_steps_and_not_the_report(
    a_site: Site, monkeypatch: pytest.MonkeyPatch, number: signal.Signals
) -> None:
    """Between two playbooks no playbook is there to be ended: the archive is asked, a spare is verified."""
    begun: list[str] = []

    def planning(site: Site, earlier: str, nodes: str) -> None:
        begun.append(earlier)
        signal.raise_signal(number)
        raise AssertionError("the signal was lost")

    def judge(*_: object) -> None:
        raise Refused("rollout 7 stopped")

    def told(*_: object, amend: Callable[[list[Step]], list[Amended]], **__: object) -> dict[str, object]:
        return {"failed_nodes": [each.as_dict() for each in amend([BACK, Step(ROLL_BACK, ("n3",), environment="Z")])]}

    documents: list[dict[str, Any]] = []
    before = signal.signal(number, signal.SIG_DFL) if number != signal.SIGINT else signal.getsignal(number)
    monkeypatch.setattr(rollout, "_refuse_no_way_back", planning)
    monkeypatch.setattr(rollout, "_run", lambda *_, **__: (None, None))
    monkeypatch.setattr(rollout, "_judge", judge)
    monkeypatch.setattr(rollout, "_told", told)
    try:
        with pytest.raises(Refused, match="rollout 7 stopped"):  # the exit code is that of the rollout
            rollout._roll_out(a_site, Order("B"), yes=True, as_json=True, tell=documents.append)
    finally:
        signal.signal(number, before)
    assert begun == ["A"]
    [document] = documents
    assert [(each["done"], each["said"]) for each in document["failed_nodes"]] == [
        (False, "interrupted: the same command goes on with it"), (None, "bedplate rollback Z --nodes 'n3'"),
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("files", "expected"),
    [
        ("sha256:1", "n[1-2]: rolled back to A"),
        ("sha256:2", "NOT done: bedplate rollback A --nodes 'n[1-2]': not what they were: n1: files"),
    ],
)
def test_a_node_that_was_rolled_back_is_compared_with_what_it_was(
    a_site: Site, monkeypatch: pytest.MonkeyPatch, files: str, expected: str
) -> None:
    there = SimpleNamespace(
        readiness=SimpleNamespace(lock=SimpleNamespace(identity=A)), world=world(n1=RUNS_A, n2=RUNS_A)
    )
    said: list[str] = []

    def told(*_: object, amend: Callable[[list[Step]], list[Amended]], **__: object) -> dict[str, object]:
        said.extend(map(str, amend([BACK])))
        return {}

    monkeypatch.setattr(rollout, "_refuse_no_way_back", lambda *_: None)
    monkeypatch.setattr(rollout, "_run", lambda *_, **__: (there, None))
    monkeypatch.setattr(rollout, "_returns", lambda *_: [Return("n1", 1, 2, {"files": "sha256:1"}, {"files": files})])
    monkeypatch.setattr(rollout, "_told", told)
    rollout._roll_out(a_site, Order("B"), yes=True, as_json=True, tell=lambda _: None)
    assert said == [expected]


def test_a_fleet_file_that_cannot_be_written_is_said_and_ends_nothing(
    a_site: Site, monkeypatch: pytest.MonkeyPatch
) -> None:
    def exchange(*_: object, **__: object) -> dict[str, str]:
        raise PermissionError(13, "Permission denied", "fleet.yml")

    monkeypatch.setattr(failednodes, "exchange", exchange)
    [line, after] = amended(a_site, SWAP, BACK, back=lambda *_: True, approved_by="ann")
    assert line.startswith("NOT done: bedplate node replace n1 n8")
    assert line.endswith("Permission denied: 'fleet.yml'")
    assert after == "n[1-2]: rolled back to A"


def test_nodes_that_failed_before_and_were_not_begun_are_left_alone(a_site: Site) -> None:
    policy = replace(POLICY, failed_node=ROLL_BACK)
    nodes = tuple(a_site.fleet.nodes[name] for name in ("n1", "n2"))
    there = Readiness(a_site, parsed(), nodes, policy, {})
    plan = Plan((Batch("recovery", ("n1", "n2")),), (), (), ())
    states = world(n1=replace(FAILED, rollout=7), n2=replace(FAILED, rollout=6))
    assert [step.nodes for step in next_for(there, plan, states, 7)] == [("n1",)]


def test_a_spare_takes_a_place_only_on_a_named_persons_word(a_site: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[dict[str, object]] = []

    def exchange(site: Site, bad: str, spare: str, **words: object) -> dict[str, str]:
        assert site is a_site
        asked.append({"bad": bad, "spare": spare, "approved_by": words["approved_by"], "reason": words["reason"]})
        return {"training": "n[2-6,8]"}

    monkeypatch.setattr(failednodes, "exchange", exchange)
    assert amended(a_site, SWAP, back=never) == [f"next: {SWAP}"]
    assert asked == []
    [line] = amended(a_site, SWAP, back=never, approved_by="ann")
    assert line.startswith("n1: partition training: n[2-6,8]\nn8 is in the place of n1.")
    assert asked == [{
        "bad": "n1", "spare": "n8", "approved_by": "ann", "reason": "failed in a rollout of B, whose policy says so",
    }]  # fmt: skip


class Slurm:
    """Partitions as slurmctld has them: what it is told stays."""

    def __init__(self, site: Site) -> None:
        self.members = {node.name: node.partition for node in site.fleet.nodes.values() if node.partition}

    def nodes(self) -> dict[str, SlurmNode]:
        return {name: SlurmNode(name, frozenset({"IDLE"}), "", (there,)) for name, there in self.members.items()}

    def partition(self, name: str, nodes: str) -> None:
        self.members.update(dict.fromkeys(expand(nodes), name))


class Well:
    """Nodes that are asked how they are; what they say is not the question here."""

    def __init__(self, site: Site) -> None: ...

    def look(self, names: Sequence[str]) -> list[None]:
        return [None] * len(names)


def test_a_second_spare_takes_its_place_beside_the_first_one(a_site: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    """The fleet file that the first exchange wrote is the one that the second begins with."""
    slurm = Slurm(a_site)
    monkeypatch.setattr(exchange, "slurm_of", lambda *_: slurm)
    monkeypatch.setattr(exchange, "refusals", lambda *_, **__: [])
    monkeypatch.setattr(exchange, "OverSsh", Well)
    steps = [Step(REPLACE, ("n2",), spare="n7"), Step(REPLACE, ("n4",), spare="n8")]
    assert a_site.fleet.groups["spare"] == ("n7", "n8"), "read once, before anything is exchanged"
    done = amend_all(a_site, steps, back=never, approved_by="ann", environment="B")
    assert [each.done for each in done] == [True, True], done
    groups = open_site(a_site.root).fleet.groups
    assert (groups["training"], groups["spare"]) == (("n1", "n3", "n5", "n6", "n7", "n8"), ("n2", "n4"))
    assert {name for name, there in slurm.members.items() if there == "spare"} == {"n2", "n4"}


def test_a_document_says_of_each_step_whether_it_was_done(a_site: Site) -> None:
    steps = [BACK, Step(LEAVE, ("n4",), why="the same command tries again, first of all")]
    said = [
        each.as_dict() for each in amend_all(a_site, steps, back=lambda *_: True, approved_by=None, environment="B")
    ]
    assert [(each["do"], each["nodes"], each["done"]) for each in said] == [
        ("rollback", ["n1", "n2"], True), ("leave", ["n4"], None),
    ]  # fmt: skip
    assert said[1]["said"] == "n4 stays drained; the same command tries again, first of all"
