"""Each changed node answers before it returns: through real ansible-playbook, on nodes of a scenario (see sim)."""

from pathlib import Path

import pytest

from bedplate.ledger.store import Ledger
from unit.simulation import STEPS, Simulation
from unit.site_sample import replace_in

pytestmark = pytest.mark.slow


def test_a_node_that_answers_wrongly_stays_out_is_counted_and_named_and_the_others_go_on(tmp_path: Path) -> None:
    sim = Simulation(tmp_path)
    policy = "failure_budget: 1"
    replace_in(sim.root / "environments" / "A.yml", policy, f"{policy}, node_questions: [devices, compute, exchange]")
    (sim.root / "acceptance").mkdir()
    (sim.root / "acceptance/lab-gpu8.yml").write_text("name: x\n")
    sim.scenario(n5={"answer": "fail"})
    ran = sim.run()
    assert ran.code != 0
    assert "each changed node answers before it returns: devices, compute, exchange" in ran.out
    assert ran.steps("n1") == [*STEPS, "answer"]
    assert "failed: compute: rank 3 is wrong (look at its log)" in ran.out
    world = sim.world()
    statuses = {name: str(world.state(name).status) for name in (f"n{i}" for i in range(1, 9))}
    assert statuses == {f"n{i}": "failed" if i == 5 else "verified" for i in range(1, 9)}
    with Ledger.read(sim.site.ledger_url) as ledger:
        told = {event.kind: event for event in ledger.events(subject="node:n5")}
        others = [event.subjects[-1] for event in ledger.events(kinds=["node.answered"])]
    assert told["node.refused"].body["asked"] == ["devices", "compute", "exchange"]
    assert told["node.failed"].body["step"] == "Answer"
    assert sorted(others) == sorted(f"node:n{i}" for i in range(1, 9) if i != 5)
    sim.scenario()
    again = sim.run()
    assert again.code == 0, again.out
    assert again.touched == {"n5"}, "the others answered already"
