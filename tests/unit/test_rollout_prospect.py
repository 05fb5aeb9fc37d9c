"""What a plan foretells and a rollback needs: boots, the way back, the rehearsal, failed nodes, the delivery."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from bedplate.act import lock as locks
from bedplate.act.wayback import way_back
from bedplate.decide.acceptance import QUESTIONS
from bedplate.decide.delivery import machines, markdown
from bedplate.decide.equality import Return
from bedplate.decide.fold import NodeState, Status, World, fold
from bedplate.decide.lockdoc import LockDocument, lock_text, parse_lock
from bedplate.decide.reboots import reboot_reasons
from bedplate.decide.rehearsal import Rehearsal, spare_for
from bedplate.decide.wayback import WayBack, changed_since, fields_of, last_proven, needs, not_in_place
from bedplate.ledger.store import Ledger
from bedplate.model.faults import BadInput, Refused
from bedplate.model.policy import Policy
from bedplate.sources.site import open_site
from unit.fleet_sample import node
from unit.lock_sample import document, set_at
from unit.simulation import Simulation
from unit.story import A, B, Story

POLICY = Policy(1, 2, 4, 1)


def lock(**changed: Any) -> LockDocument:
    made = document()
    for path, value in changed.items():
        made = set_at(made, path.replace("__", "/"), value)
    return parse_lock(lock_text(made), "A.lock.json")


# --- boots ----------------------------------------------------------------------------------------


def test_nodes_boot_for_another_kernel_driver_or_command_line_and_for_nothing_else() -> None:
    old = lock()
    assert reboot_reasons(old, old, "gpu") == []
    other = lock(layers__kernel={"command_line": ["iommu=pt"]})
    assert reboot_reasons(old, other, "gpu") == ["command line none -> iommu=pt"]
    assert all(each.endswith("unless it runs already") for each in reboot_reasons(None, old, "gpu"))


# --- the way back ---------------------------------------------------------------------------------


def test_firmware_and_hardware_are_not_taken_back_by_packages() -> None:
    running, target = lock(layers__firmware={"unmanaged": "none"}), lock(layers__firmware={"unmanaged": "other"})
    assert not_in_place(running, running) == []
    assert not_in_place(running, target) == ["firmware: unmanaged now, unmanaged then: no package takes that back"]
    way = WayBack("A", A, ("n1",), in_place=("firmware: x",))
    assert not way.possible
    assert "playbooks/reinstall.yml -e target=A -e approved_by=NAME" in way.lines()[-1]


def test_what_a_way_back_needs_is_counted() -> None:
    found = needs(lock(), ["gpu"])
    assert found["packages"] > 0
    assert found["packages_bytes"] > 0
    assert found["artifact_sha256"].startswith("sha256:")


def test_files_that_will_be_others_are_told_by_the_fields_of_the_fleet_that_changed() -> None:
    now = node("n1", rack="r02")
    [then] = Story().of(1, "node.done", A, "n1", manifest_sha256=A, fleet=fields_of(node("n1"))).events
    assert changed_since(now, then, A) == ""
    assert changed_since(now, then, B) == "n1: its files will not be those of event 1: rack r01 -> r02"
    [older] = Story().of(1, "node.done", A, "n1", manifest_sha256=A).events
    assert changed_since(now, older, B).endswith("what the fleet said then was not recorded")
    [same] = Story().of(1, "node.done", A, "n1", manifest_sha256=A, fleet=fields_of(now)).events
    assert changed_since(now, same, B).endswith("another node, or the site's own data, is in them and changed")


@pytest.mark.parametrize("what", ["archive", "lock"])
def test_everything_that_is_gone_is_named_before_anything_is_touched(
    what: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(locks, "verify_online", lambda *_: [])
    sim = Simulation(tmp_path)
    nodes = [sim.site.fleet.nodes["n1"]]
    with Ledger.read(sim.site.ledger_url) as ledger:
        assert way_back(sim.site, ledger, "A", nodes, leaving=["A"]).possible
        if what == "archive":
            fault = BadInput("numactl 1 is not in the archive")
            monkeypatch.setattr(locks, "verify_online", lambda *_: (_ for _ in ()).throw(fault))
            said = "numactl 1 is not in the archive"
        else:
            path = sim.site.lock_path("A")
            path.write_text(path.read_text().replace("archive.lab", "other.lab"))
            said = "the ledger does not know lock A"
        way = way_back(open_site(sim.root), ledger, "A", nodes, leaving=[])
    assert not way.possible
    assert said in way.refusals[0]


# --- the rehearsal --------------------------------------------------------------------------------


def world(**states: NodeState) -> World:
    return World(states, {}, {A: "A", B: "B"}, 0)


RUNS_B = NodeState(Status.VERIFIED, runs=B, previous=A)


def test_a_rehearsal_takes_the_first_spare_whose_state_is_known() -> None:
    there = world(n7=NodeState(Status.FAILED, runs=B), n8=RUNS_B)
    assert spare_for(there, ["n7", "n8"], [], A) == ("n8", B)
    with pytest.raises(Refused, match=r"takes one spare, n1 is not one \(the group spare: n\[7-8\]\)"):
        spare_for(there, ["n7", "n8"], ["n1"], A)
    with pytest.raises(Refused, match="no spare to rehearse on"):
        spare_for(there, ["n7", "n8"], ["n7"], A)
    with pytest.raises(Refused, match="no spare to rehearse on"):
        spare_for(world(n8=replace(RUNS_B, runs=A)), ["n8"], [], A)


SAME, OTHER = {"files": "sha256:1"}, {"files": "sha256:2"}


@pytest.mark.parametrize(
    ("there", "back", "returned", "passed", "why"),
    [
        (True, Return("n8", 1, 2, SAME, SAME), True, True, ""),
        (True, Return("n8", 1, 2, SAME, OTHER), True, False, "differs: files"),
        (True, Return("n8", None, 2, {}, OTHER), True, True, ""),
        (False, None, True, False, "it did not reach A"),
        (True, Return("n8", 1, 2, SAME, SAME), False, False, "it did not come back to B"),
    ],
)
def test_a_rehearsal_is_a_proof_only_there_and_back(
    there: bool, back: Return | None, returned: bool, passed: bool, why: str
) -> None:
    draft = Rehearsal("n8", "B", "A", A, there, back, returned).draft([3, 4])
    assert (draft.body["passed"], draft.body["why"], draft.environment) == (passed, why, A)
    event = Story().tell(draft.kind, draft.subjects, A, dict(draft.body))
    said = last_proven([event], A)
    assert said == "last proven on 2026-11-02 (n8, event 1)" if passed else "FAILED" in said
    assert last_proven([event], B) == "never rehearsed"


# --- the delivery ---------------------------------------------------------------------------------


def delivered() -> Story:
    story = Story().started(1, A, rules=[{"rule": "R-1", "weight": "note", "found": "x"}])
    story.of(1, "batch.admitted", A, "n1", "n2", batch=0, name="canary")
    story.of(1, "step.ended", A, "n1", "n2", step="Converge", result="changed")
    story.of(1, "node.verified", A, "n1", verdict="PASS", facts={}, why="")
    story.of(1, "node.done", A, "n1", manifest_sha256=A)
    story.of(1, "node.failed", A, "n2", step="Verify", why="no GPU")
    passed = {name: {"verdict": "passed"} for name in QUESTIONS}
    story.tell("node.accepted", ("node:n1",), A, {"questions": passed, "stand_in": False, "logs": {"job.txt": A}})
    return story


def test_a_machine_is_complete_when_every_answer_of_it_is_recorded() -> None:
    found = machines(delivered().events, {"n1": "S1", "n2": "S2", "n3": "S3"}, A)
    assert found["n1"].missing == []
    assert found["n1"].as_dict()["steps"] == {"Converge": "changed"}
    assert "its change has no recorded end" in found["n2"].missing
    assert found["n2"].steps["Verify"] == "failed: no GPU"
    assert "versions against the vendor's list: not recorded" in found["n3"].missing
    text = markdown("A", A, list(found.values()))
    assert "1 of 3 machines complete, 0 signed for." in text
    assert "## Rollout 1, batch 1 canary" in text
    assert "## Not recorded" in text


@pytest.mark.parametrize("weight", ["fault", "unknown"])
def test_what_a_rule_found_against_the_vendors_list_is_missing(weight: str) -> None:
    story = Story().started(1, A, rules=[{"rule": "R-1", "weight": weight, "found": "driver 1"}])
    story.of(1, "batch.admitted", A, "n1", batch=0, name="rest")
    assert "vendor's list: R-1: driver 1" in machines(story.events, {"n1": "S1"}, A)["n1"].missing


def test_a_refused_acceptance_and_stand_ins_are_no_answers() -> None:
    story = delivered()
    story.tell("node.refused", ("node:n1",), A, {"questions": {"devices": {"verdict": "failed"}}, "stand_in": True})
    missing = machines(story.events, {"n1": "S1"}, A)["n1"].missing
    assert "devices: failed" in missing
    assert "compute: not recorded" in missing
    assert "its acceptance was answered by stand-ins" in missing


def test_a_signature_is_of_a_person_and_stands_in_the_report() -> None:
    story = delivered()
    story.tell("delivery.signed", ("node:n1",), A, {"signed_by": "Maria", "remark": "complete", "incomplete": []})
    [machine] = machines(story.events, {"n1": "S1"}, A).values()
    assert machine.signed == "Maria, 2026-11-02, event 8: complete"
    assert fold(story.events).state("n1").runs == A, "a signature changes no node"
