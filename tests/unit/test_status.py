"""What `bedplate status` and `bedplate plan` say of nodes that failed, are in work, or that nobody has in hand."""

import json
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from bedplate.act import controllerlock
from bedplate.act import lock as locks
from bedplate.cli.main import bedplate
from bedplate.cli.progress import Progress
from bedplate.cli.whole import events_of
from bedplate.decide.brief import GAP, brief
from bedplate.decide.fold import fold
from bedplate.decide.plan import Batch, Plan
from bedplate.ledger import projection
from bedplate.ledger.store import Ledger
from bedplate.model.event import Draft
from bedplate.sources.site import Site, open_site
from unit.ledger_sample import write_site
from unit.simulation import Simulation
from unit.story import A, B, Story

APT = (
    "apt-get failed: " + "numactl=2.0.18-1 " * 30 + "\nReading package lists...\nE: dpkg was interrupted: no space\n..."
)


@pytest.fixture
def site(tmp_path: Path) -> Site:
    return write_site(tmp_path / "site")


@pytest.fixture
def held(site: Site) -> Iterator[None]:
    """A controller of rollout 1 that lives: this process."""
    handle = controllerlock.acquire(controllerlock.place(site))
    about = {"rollout": 1, "environment": "A", "actor": "maria@ctl", "since": "2026-11-02T09:14:03+00:00"}
    controllerlock.describe(handle, about)
    yield
    controllerlock.release(handle)


@pytest.fixture(autouse=True)
def _own_processes_count(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(controllerlock, "_holders", lambda _: [os.getpid()])


def record(site: Site, story: Story) -> None:
    with Ledger.open(site.ledger_url, actor="maria@ctl") as book:
        book.append(*(Draft(one.kind, one.subjects, one.body, one.environment) for one in story.events))


def said(site: Site, *words: str) -> str:
    found = CliRunner().invoke(
        bedplate, ["--site", str(site.root), *words], standalone_mode=False, catch_exceptions=False
    )
    return found.output


def row(site: Site, node: str) -> list[str]:
    (found,) = [line.split("\t") for line in said(site, "status").splitlines() if line.startswith(f"{node}\t")]
    return found


def begun() -> Story:
    story = Story().resolved(A).resolved(B).started(1, A)
    return story.of(1, "batch.admitted", A, "n1", batch=0, name="rest")


# --- texts that a line has no room for ------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "width", "found"),
    [
        ("short", 20, "short"),
        ("two\n  lines", 20, "two lines"),
        ("a\x1b[2J\n\tb\u202e", 20, "a [2J b"),
        ("apt-get failed:\nReading lists...\nE: no space left\n---\n", 40, "apt-get failed: ... E: no space left"),
        ("x" * 40 + "cause", 25, "x" * 8 + GAP + "x" * 7 + "cause"),
        ("begin " + "x" * 90 + "\nmiddle\n" + "y" * 90 + " end", 30, "begin xxxx ... " + "y" * 11 + " end"),
        ("." * 50, 25, "." * 8 + GAP + "." * 12),
    ],
)
def test_a_long_text_keeps_its_front_and_its_end(text: str, width: int, found: str) -> None:
    assert brief(text, width) == found
    assert len(found) <= width


def test_every_command_shows_the_end_of_why_a_node_failed_and_where_all_of_it_is(site: Site) -> None:
    record(site, begun().of(1, "node.failed", A, "n1", step="Install", why=APT))
    cause, event = "E: dpkg was interrupted: no space", 5
    for words in (["status"], ["ledger", "log", "--kind", "node.failed"], ["ledger", "explain", "n1"]):
        text = said(site, *words)
        assert f"{GAP}{cause}" in text, words
        assert "bedplate ledger show" in text, words
    last = row(site, "n1")[-1]
    assert "failed since" in last
    assert last.endswith(f"{cause} (all of it: bedplate ledger show {event})")
    assert cause in said(site, "ledger", "show", str(event))


def test_the_line_of_a_running_rollout_does_too(site: Site, capsys: pytest.CaptureFixture[str]) -> None:
    record(site, begun().of(1, "node.failed", A, "n1", step="Install", why=APT))
    with Ledger.read(site.ledger_url) as book:
        shown = Progress(
            Plan((Batch("rest", ("n1",)),), (), (), ()), history_s=None, soak_s=0, budget=1, quiet=False,
            events_of=lambda states: events_of(book, states),
        )  # fmt: skip
        shown.follow(projection.world(book), 1)
    line = capsys.readouterr().out.splitlines()[0]
    assert line.endswith("E: dpkg was interrupted: no space (all of it: bedplate ledger show 5)")


def test_what_has_room_is_not_pointed_at(site: Site) -> None:
    record(site, begun().of(1, "node.failed", A, "n1", step="Install", why="no space"))
    assert row(site, "n1")[-1].endswith(", at 'Install': no space")
    assert "ledger show" not in said(site, "ledger", "log")


# --- a verification after a change ----------------------------------------------------------------


def test_a_bad_verification_after_a_rollout_is_not_told_as_its_failure(site: Site) -> None:
    record(site, Story().resolved(A).changed(5, A, "n1"))
    record(site, Story().verified("n1", A, "FAIL", why="no driver" + " x" * 200 + " the end"))
    last = row(site, "n1")[-1]
    assert last.startswith("changed in rollout 5 to A; a verification after the rollout, at 20")
    assert " found it failed: no driver" in last
    assert last.endswith("the end (all of it: bedplate ledger show 7)")
    assert "since" not in last
    record(site, Story().verified("n1", B, "FAIL", why="a question that somebody asked"))
    assert row(site, "n1")[-1] == last


def test_a_node_that_is_well_again_and_still_drained_is_told_so(site: Site) -> None:
    record(site, Story().resolved(A).changed(5, A, "n1").verified("n1", A, "FAIL", why="x", drained=True))
    assert row(site, "n1")[3] == "failed"
    record(site, Story().verified("n1", A))
    assert row(site, "n1")[3] == "verified, drained"
    assert json.loads(said(site, "status", "--json"))["nodes"]["n1"]["drained"] is True
    record(site, Story().changed(6, A, "n1"))
    assert row(site, "n1")[3] == "verified"


def test_one_before_the_end_of_the_rollout_is_told_as_such(site: Site) -> None:
    story = Story().resolved(A).changed(5, A, "n1")
    story.events.pop()  # the rollout goes on: its soak asks again
    record(site, story.verified("n1", A, "FAIL", why="no driver"))
    assert "changed in rollout 5 to A; a verification after its change, at 20" in row(site, "n1")[-1]
    record(site, Story().of(5, "rollout.ended", A))
    assert "a verification after its change, at 20" in row(site, "n1")[-1], "the end of the rollout came later"


# --- who has a node in hand -----------------------------------------------------------------------


@pytest.mark.usefixtures("held")
def test_a_node_that_a_living_rollout_has_in_hand_is_in_work(site: Site) -> None:
    record(site, begun().of(1, "step.ended", A, "n1", step="Drain", result="ok"))
    found = row(site, "n1")
    assert found[3] == "in work"
    assert found[-1].startswith("in work in rollout 1 to A, since 20")
    assert found[-1].endswith(", at 'Drain'")
    text = said(site, "status")
    assert "in doubt" not in text
    assert "4 nodes: 1 in work, 3 never seen" in text
    document: dict[str, Any] = json.loads(said(site, "status", "--json"))
    assert document["nodes"]["n1"]["in_work"] is True
    assert document["nodes"]["n2"]["in_work"] is False


@pytest.mark.usefixtures("held")
def test_a_node_that_an_earlier_rollout_left_stays_in_doubt(site: Site) -> None:
    record(site, Story().resolved(A).started(2, A).of(2, "batch.admitted", A, "n1", batch=0, name="rest"))
    assert row(site, "n1")[3] == "in doubt"


@pytest.mark.usefixtures("held")
def test_a_node_whose_controller_died_is_in_doubt_though_its_workers_live(
    site: Site, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(controllerlock, "_holders", lambda _: [1])
    record(site, begun())
    assert row(site, "n1")[3] == "in doubt"
    assert "its workers [1] may still be acting" in said(site, "status")


def test_a_node_whose_rollout_is_gone_is_in_doubt(site: Site) -> None:
    record(site, begun())
    assert row(site, "n1")[3] == "in doubt"
    assert "its controller died" in said(site, "status")


def test_a_plan_says_first_that_a_rollout_runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(locks, "verify_online", lambda *_: [])
    sim = Simulation(tmp_path)
    with Ledger.open(sim.site.ledger_url) as book:
        about = ("rollout:1", "environment:A")
        book.append(
            Draft("rollout.started", about, {"environment": "A"}, sim.lock.identity),
            Draft("batch.admitted", (*about, "node:n2"), {"batch": 0, "name": "canary"}, sim.lock.identity),
        )
        assert fold(book.events()).state("n2").rollout == 1
    site = open_site(sim.root)
    handle = controllerlock.acquire(controllerlock.place(site))
    about_it = {"rollout": 1, "environment": "A", "actor": "maria@ctl", "since": "2026-11-02T09:14:03+00:00"}
    controllerlock.describe(handle, about_it)
    try:
        lines = said(site, "plan", "A").splitlines()
        assert lines[0].startswith("rollout is running: rollout 1 to A by maria@ctl, since 2026-11-02T09:14:03+00:00")
        assert "  in work in rollout 1 now: n2" in lines
        assert not [line for line in lines if "in doubt" in line]
        assert "rollout 1 to A by maria@ctl" in json.loads(said(site, "plan", "A", "--json"))["running"]
    finally:
        controllerlock.release(handle)
    lines = said(site, "plan", "A").splitlines()
    assert lines[0].startswith("Environment A ")
    assert "  in doubt, done first: n2" in lines
