"""What is drawn while a rollout runs: batches, nodes that do the same together, and when it may end."""

import datetime
import re

import pytest
from rich.console import Console

from bedplate.cli.progress import Progress
from bedplate.decide.fold import World, fold
from bedplate.decide.plan import Batch, Plan
from unit.story import A, Story

PLAN = Plan((Batch("canary", ("n1",)), Batch("rest", ("n2", "n3", "n4")), Batch("rest", ("n5",))), (), (), ())


def progress(history_s: float | None = None) -> Progress:
    return Progress(PLAN, history_s=history_s, soak_s=0, budget=2, quiet=False)


def began() -> Story:
    story = Story().started(1, A).of(1, "batch.admitted", A, "n1", batch=0, name="canary")
    return story.of(1, "step.ended", A, "n1", step="Drain", result="ok")


def first_done(story: Story) -> Story:
    story.of(1, "node.verified", A, "n1", verdict="PASS", why="", facts={})
    return story.of(1, "node.done", A, "n1", manifest_sha256=A)


def second(story: Story) -> Story:
    story.of(1, "batch.admitted", A, "n2", "n3", "n4", batch=1, name="rest")
    story.of(1, "step.ended", A, "n2", "n3", step="Converge", result="changed")
    return story.of(1, "node.failed", A, "n4", step="Converge", why="dpkg:\n error")


def lines(shown: Progress, world: World, capsys: pytest.CaptureFixture[str]) -> list[str]:
    shown.follow(world, 1)
    return [
        re.sub(r"until \d\d:\d\d UTC", "until HH:MM UTC", line.strip()) for line in capsys.readouterr().out.splitlines()
    ]


def test_elsewhere_than_in_a_terminal_it_is_a_line_for_each_change(capsys: pytest.CaptureFixture[str]) -> None:
    shown, story = progress(), began()
    assert lines(shown, fold(story.events), capsys) == ["batch 1/3 canary: n1: begun"]
    assert lines(shown, fold(story.events), capsys) == [], "nothing new"
    one, end = lines(shown, fold(first_done(story).events), capsys)
    assert one == "batch 1/3 canary: n1: verified"
    said = "1 of 1 nodes in 3 s; 1 of 5 nodes done, 0 bad, failure budget 2; about 6 s left, until HH:MM UTC"
    assert end == f"batch 1/3 canary: {said}"
    assert lines(shown, fold(second(story).events), capsys) == [
        "batch 2/3 rest: n2: begun", "batch 2/3 rest: n3: begun",
        "batch 2/3 rest: n4: failed at 'Converge': dpkg: error",
    ]  # fmt: skip
    for name in ("n2", "n3"):
        story.of(1, "node.verified", A, name, verdict="PASS", why="", facts={})
        story.of(1, "node.done", A, name, manifest_sha256=A)
    assert lines(shown, fold(story.events), capsys)[-1].startswith(
        "batch 2/3 rest: 2 of 3 nodes in 6 s; 3 of 5 nodes done, 1 bad, failure budget 2; about 4 s left"
    )


def test_without_history_and_without_an_end_nothing_is_foretold(capsys: pytest.CaptureFixture[str]) -> None:
    shown, story = progress(), began()
    lines(shown, fold(story.events), capsys)
    now = datetime.datetime(2026, 11, 2, tzinfo=datetime.UTC)
    states = [{"n1": fold(story.events).state("n1")}, {}, {}]
    assert shown.outlook(states, now).endswith("how long it will take is not known yet")
    foretold = progress(history_s=600)
    foretold.follow(fold(story.events), 1)
    [at] = [datetime.datetime.fromisoformat(str(state.at)) for state in states[0].values()]
    said = foretold.outlook(states, at + datetime.timedelta(seconds=300))
    assert said.endswith(f"about 25 min left, until {at + datetime.timedelta(seconds=1800):%H:%M} UTC")


def test_in_a_terminal_nodes_that_do_the_same_stand_together(capsys: pytest.CaptureFixture[str]) -> None:
    shown, world = progress(), fold(second(first_done(began())).events)
    shown.follow(world, 1)
    capsys.readouterr()
    states = [{name: world.state(name) for name in batch.nodes if world.state(name).rollout} for batch in PLAN.batches]
    console = Console(width=100, record=True)
    console.print(shown.table(states, datetime.datetime.now(datetime.UTC)))
    text = console.export_text()
    assert "n[2-3]: Converge" in text
    assert "n4: failed at Converge" in text
    assert "1 of 5 nodes done, 1 bad, failure budget 2" in text


def test_a_document_is_not_disturbed(capsys: pytest.CaptureFixture[str]) -> None:
    quiet = Progress(PLAN, history_s=None, soak_s=0, budget=2, quiet=True)
    quiet.follow(fold(began().events), 1)
    assert not capsys.readouterr().out
