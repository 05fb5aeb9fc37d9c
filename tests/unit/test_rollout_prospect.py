"""What a plan foretells and a rollback needs: boots, the way back, the rehearsal."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from bedplate.act import lock as locks
from bedplate.act.wayback import way_back
from bedplate.decide.equality import Return
from bedplate.decide.fold import NodeState, Status, World
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
