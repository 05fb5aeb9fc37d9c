"""Faults of rollouts that would pass in silence: a misspelt word, a retry, a node that is stuck, no answer."""

import json
from pathlib import Path
from types import SimpleNamespace

import pytest
from click.testing import CliRunner

from bedplate.act import controllerlock
from bedplate.act import lock as locks
from bedplate.act.rollout import Order, Session
from bedplate.cli.status import status
from bedplate.ledger.store import Ledger
from unit.ledger_sample import write_site
from unit.simulation import Simulation
from unit.story import A, Story
from unit.test_ledger_faults import record


@pytest.mark.slow
def test_a_misspelt_variable_is_refused_and_no_node_is_touched(tmp_path: Path) -> None:
    """ansible#77159: unknown variables pass in silence; -e failure_bugdet=0 is a rollout with the policy's budget."""
    ran = Simulation(tmp_path).run(failure_bugdet="0")
    assert ran.saw == [], ran.out[-2000:]
    assert "failure_bugdet" in ran.out
    assert "failure_budget" in ran.out, "and the near one is named"


def test_a_rollout_that_tries_again_names_the_rollouts_that_it_tries_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A retry is a new record that names the one it retries: also one that ended, with failed nodes."""
    monkeypatch.setattr(locks, "verify_online", lambda *_: [])
    sim = Simulation(tmp_path)
    first = Session(sim.site, Order("A"), dry=False)
    first.next_batch()
    first.judge()
    first.failed("n1", "Install", "no space", unreachable=False)
    first.end()
    first.ledger.close()
    assert first.controller_lock is not None
    controllerlock.release(first.controller_lock)
    second = Session(sim.site, Order("A"), dry=False)
    try:
        with Ledger.read(sim.site.ledger_url) as book:
            *_, started = book.events(kinds=["rollout.started"])
        assert started.body["retries"] == {"n1": 1}
    finally:
        second.ledger.close()
        assert second.controller_lock is not None
        controllerlock.release(second.controller_lock)


def test_status_says_since_when_a_node_is_stuck(tmp_path: Path) -> None:
    """gpu-operator#2509: most nodes waited for weeks, and nobody noticed."""
    site = write_site(tmp_path / "site")
    story = Story().resolved(A).started(1, A).of(1, "batch.admitted", A, "n1", batch=0, name="rest")
    record(site, story.of(1, "node.failed", A, "n1", step="Install", why="no space"))
    at = json.loads(CliRunner().invoke(status, ["--json"], obj=site.root).stdout)["nodes"]["n1"]["at"]
    text = CliRunner().invoke(status, [], obj=site.root, env={"COLUMNS": "300"}).stdout
    assert f"since {at[:19].replace('T', ' ')}" in text, text


def test_a_question_for_pins_that_failed_is_no_pass(pytestconfig: pytest.Config) -> None:
    """An unknown state is never a pass: tests/node/test_files.py takes no answer for no pins."""
    pytestconfig.addinivalue_line("markers", "layer(name): see tests/node/pytest.ini")
    from node.test_files import test_nothing_is_pinned_beside_the_lock as pins  # noqa: PLC0415

    host = SimpleNamespace(run=lambda _: SimpleNamespace(stdout="", rc=255, stderr="Broken pipe", command="ls"))
    with pytest.raises(Exception, match="255"):
        pins("n1", host)
