"""The way of a node that failed: its ticket, a spare in its place, and all that speaks against that."""

from collections.abc import Iterator, Mapping
from dataclasses import replace as changed
from pathlib import Path

import pytest

from bedplate.act import nodereplace
from bedplate.decide.fold import NodeState, Status, World
from bedplate.decide.nodeswap import asked_environment, partitions, refusals, swap
from bedplate.decide.slurmnodes import SlurmNode
from bedplate.decide.ticket import ticket
from bedplate.decide.verification import Verification
from bedplate.ledger.store import Ledger
from bedplate.model.canonical import sha256
from bedplate.model.faults import BadInput
from bedplate.model.fleet import Fleet, parse_fleet
from bedplate.sources.site import Site, open_site
from bedplate_agent.sinks import Result
from bedplate_agent.verdict import ERROR, FAIL, PASS, RESET, Finding
from unit.site_sample import FLEET, NODES, write_site

A, B = "sha256:" + "a" * 64, "sha256:" + "b" * 64
FLEET_FILE = FLEET.replace("groups:", "# who may do what: ask Ann\ngroups:  # 6 + 2")


def fleet(text: str = FLEET_FILE) -> Fleet:
    return parse_fleet(text, NODES, fleet_file="fleet.yml", csv_file="nodes.csv")


def test_two_values_of_the_fleet_file_change_and_nothing_else() -> None:
    found = swap(FLEET_FILE, NODES, fleet(), "n4", "n7")
    assert found.groups == {"training": "n[1-3,5-7]", "spare": "n[4,8]"}
    expected = FLEET_FILE.replace('training: {nodes: "n[1-6]"', 'training: {nodes: "n[1-3,5-7]"')
    assert found.text == expected.replace('spare: {nodes: "n[7-8]"', 'spare: {nodes: "n[4,8]"')
    after = fleet(found.text)
    assert (after.nodes["n4"].partition, after.nodes["n7"].partition) == ("spare", "training")


def test_back_again_is_the_file_of_before_but_for_the_quotes() -> None:
    once = swap(FLEET_FILE, NODES, fleet(), "n4", "n7").text
    assert swap(once, NODES, fleet(once), "n7", "n4").text == FLEET_FILE


def test_the_reference_machine_becomes_no_spare() -> None:
    with pytest.raises(BadInput, match="n1 is a spare and in reference"):
        swap(FLEET_FILE, NODES, fleet(), "n1", "n8")


@pytest.mark.parametrize("style", ["n[7-8]", "'n[7-8]'", '"n7,n8"', '"n7,n8"  # Ann\'s'])
def test_the_value_is_found_however_it_is_written(style: str) -> None:
    block = f"  spare:\n    kind: gpu\n    partition: spare\n    nodes: {style}\n"
    text = FLEET_FILE.replace('  spare: {nodes: "n[7-8]", kind: gpu, partition: spare}\n', block)
    found = swap(text, NODES, fleet(text), "n4", "n7")
    assert fleet(found.text).groups["spare"] == ("n4", "n8")
    assert found.text.count("Ann") == text.count("Ann")


def test_a_value_of_several_lines_is_not_edited() -> None:
    text = FLEET_FILE.replace(
        '  spare: {nodes: "n[7-8]", kind: gpu, partition: spare}\n',
        "  spare:\n    kind: gpu\n    partition: spare\n    nodes: >-\n      n7,n8\n",
    )
    with pytest.raises(BadInput, match="block of several lines"):
        swap(text, NODES, fleet(text), "n4", "n7")


def test_nodes_of_one_group_cannot_change_places() -> None:
    with pytest.raises(BadInput, match="no two groups with a partition"):
        swap(FLEET_FILE, NODES, fleet(), "n4", "n5")
    with pytest.raises(BadInput, match="ctl in controller"):
        swap(FLEET_FILE, NODES, fleet(), "n4", "ctl")


# --- what speaks against it


def slurm(**given: tuple[set[str], str]) -> dict[str, SlurmNode]:
    def one(name: str, partition: str) -> SlurmNode:
        flags, reason = given.get(name, ({"IDLE"}, ""))
        both = (partition, "small") if partition == "training" else (partition,)
        return SlurmNode(name, frozenset(flags), reason, both)

    return {node.name: one(node.name, node.partition or "") for node in fleet().nodes.values() if node.partition}


DRAINED = {"n4": ({"IDLE", "DRAIN"}, "HC:gpu.count 0123456789ab")}
WORLD = World({f"n{i}": NodeState(Status.VERIFIED, runs=A) for i in range(1, 9)}, {}, {A: "A", B: "B"}, 1)
WELL = Result("n7", PASS, (Finding(PASS, "", check="gpu.count"),))
SAME = Verification("n7", "A", "PASS", "")


def against(known: Mapping[str, SlurmNode], world: World = WORLD, **words: object) -> list[str]:
    given = {"bad": "n4", "spare": "n7", "verified": SAME, "health": WELL, **words}
    return refusals(fleet(), world, known, **given)  # type: ignore[arg-type]


def test_a_drained_node_and_a_proven_spare_change_places() -> None:
    assert against(slurm(**DRAINED)) == []
    assert partitions(slurm(**DRAINED), "n4", "n7") == {
        "training": "n[1-3,5-7]", "small": "n[1-3,5-7]", "spare": "n[4,8]",
    }  # fmt: skip


def test_every_reason_is_told_at_once() -> None:
    world = changed(WORLD, nodes={**WORLD.nodes, "n7": NodeState(Status.IN_DOUBT, runs=B)})
    known = slurm(n4=({"MIXED"}, ""), n7=({"IDLE", "DRAIN"}, "memory swap, Ann"))
    sick = Result("n7", FAIL, (Finding(FAIL, "is pending", "gpu3", check="gpu.remap_pending"),))
    differs = Verification("n7", "A", "FAIL", "kernel: 6.8.0-45")
    assert against(known, world, verified=differs, health=sick) == [
        "n4 has jobs (MIXED): drain it, and wait for them",
        "n7 is in doubt: a rollout did not end on it",
        "n4 is MIXED for Slurm: drain it first, with the reason",
        "n7 is DRAIN+IDLE for Slurm: memory swap, Ann",
        "n7 runs B, A is asked for (bedplate rollout A --nodes n7)",
        "n7 is not what its lock says: FAIL kernel: 6.8.0-45",
        "n7 is FAIL: gpu.remap_pending gpu3 is pending",
    ]


def test_what_is_not_known_speaks_against_it() -> None:
    nothing = Result("n7", ERROR, (Finding(ERROR, "no answer", check="node.answers"),))
    nobody = World({}, {}, {}, 1)
    said = against({}, nobody, verified=None, health=nothing)
    assert said == [
        "slurmctld does not know n4", "slurmctld does not know n7",
        "the ledger does not know which environment n4 or its neighbours run",
        "n7 was not verified: nothing is known of its environment and image",
        "n7 is ERROR: node.answers no answer",
    ]  # fmt: skip
    assert "nothing is known of its health" in against(slurm(**DRAINED), health=None)[0]
    assert against(slurm(**DRAINED), bad="n4", spare="n4") == ["n4 cannot take its own place"]
    assert "kind controller" in against(slurm(**DRAINED), spare="ctl")[0]


def test_a_bad_node_of_which_nothing_is_known_is_held_against_its_neighbours() -> None:
    nodes = {**WORLD.nodes, "n4": NodeState(), "n5": NodeState(Status.VERIFIED, runs=B)}
    assert asked_environment(fleet(), changed(WORLD, nodes=nodes), "n4") == A


# --- doing it


class Partitions:
    """Slurm's partitions; killed at the call that a test names."""

    def __init__(self, kill_at: int | None = None) -> None:
        self.kill_at, self.calls = kill_at, 0
        self.set: dict[str, str] = {}

    def nodes(self) -> Mapping[str, SlurmNode]:
        return slurm(**DRAINED)

    def partition(self, name: str, nodes: str) -> None:
        if self.calls == self.kill_at:
            raise KeyboardInterrupt
        self.calls += 1
        self.set[name] = nodes


@pytest.fixture
def site(tmp_path: Path) -> Site:
    return open_site(write_site(tmp_path / "site"))


@pytest.fixture
def ledger(site: Site) -> Iterator[Ledger]:
    with Ledger.open(site.ledger_url) as opened:
        yield opened


def put_in_place(site: Site, ledger: Ledger, there: Partitions) -> None:
    planned = swap(site.fleet_path.read_text(), NODES, site.fleet, "n4", "n7")
    nodereplace.replace(
        site, ledger, there, planned, approved_by="ann", reason="HC:gpu.count", known=there.nodes()
    )  # fmt: skip


def test_a_replacement_is_recorded_before_and_after_with_who_approved_it(site: Site, ledger: Ledger) -> None:
    there = Partitions()
    put_in_place(site, ledger, there)
    before, after = list(ledger.events())
    assert (before.kind, after.kind) == ("node.replacing", "node.replaced")
    assert before.subjects == after.subjects == ("node:n4", "node:n7")
    assert (before.body["approved_by"], before.body["reason"]) == ("ann", "HC:gpu.count")
    assert after.body["fleet"] == before.body["fleet_after"] == sha256(site.fleet_path.read_bytes())
    assert there.set == {"small": "n[1-3,5-7]", "spare": "n[4,8]", "training": "n[1-3,5-7]"}
    assert nodereplace.begun(ledger, "n4", "n7") is None
    assert open_site(site.root).fleet.nodes["n7"].partition == "training"


@pytest.mark.parametrize("kill_at", [0, 1, 2])
def test_one_that_was_killed_goes_on_where_it_was(site: Site, ledger: Ledger, kill_at: int) -> None:
    with pytest.raises(KeyboardInterrupt):
        put_in_place(site, ledger, Partitions(kill_at))
    found = nodereplace.begun(ledger, "n4", "n7")
    assert found is not None
    assert found.fleet_after == sha256(site.fleet_path.read_bytes()), "the file has it already"
    assert nodereplace.begun(ledger, "n4", "n8") is None, "another spare is another question"
    there = Partitions()
    nodereplace.finish(site, ledger, there, found)
    assert there.set == {"small": "n[1-3,5-7]", "spare": "n[4,8]", "training": "n[1-3,5-7]"}
    assert nodereplace.begun(ledger, "n4", "n7") is None


# --- its ticket


def test_a_ticket_says_which_machine_what_is_wrong_what_is_asked_for_and_what_was_before() -> None:
    wrong = Finding(
        FAIL, "a row remap is pending", "gpu3", action=RESET, remedy="reset all GPUs", check="gpu.remap_pending"
    )  # fmt: skip
    result = Result("n4", FAIL, (wrong,), "0123456789ab", "A", "sha256:1", "boot-1", "2026-11-30T10:00:00Z")
    text = ticket(
        fleet(), WORLD, "n4", result, slurm=slurm(**DRAINED)["n4"], note="third time",
        events=[("2026-11-29T09:00:00Z node.done", "files")], bundle="n4-0123456789ab.tar.gz",
    )  # fmt: skip
    assert text.startswith("# n4: gpu.remap_pending gpu3: a row remap is pending\n")
    for said in (
        "serial LAB-4, rack r01, position 4", "BMC 10.78.0.14", "asked for: reset: reset all GPUs", "environment: A",
        "Slurm: DRAIN+IDLE: HC:gpu.count 0123456789ab", "n4-0123456789ab.tar.gz", "third time", "boot: boot-1",
        "- FAIL gpu.remap_pending gpu3: a row remap is pending [reset]", "2026-11-29T09:00:00Z node.done: files",
        "bedplate node return n4", "bedplate node replace n4 SPARE",
    ):  # fmt: skip
        assert said in text


def test_a_ticket_is_written_of_a_node_that_does_not_answer() -> None:
    silent = Result("n4", ERROR, (Finding(ERROR, "connecting: no route", check="node.answers"),))
    text = ticket(fleet(), WORLD, "n4", silent, slurm=None, events=[], note="", bundle="b.tar.gz")
    assert "# n4: node.answers: connecting: no route" in text
    assert "Slurm: not known there" in text
    assert "asked for: find out" in text
