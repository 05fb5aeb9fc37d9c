"""What ledgers and states of fleets elsewhere are known to get wrong, tried on ours."""

import json
import sqlite3
import subprocess
import sys
from contextlib import closing
from dataclasses import replace
from pathlib import Path

import pytest
from click.testing import CliRunner

from bedplate.cli import rollout as rollout_command
from bedplate.cli.status import status
from bedplate.decide.fold import BAD, Status, fold
from bedplate.decide.ledgeranchor import parse_anchor
from bedplate.decide.ledgerexport import check, export
from bedplate.ledger import places, projection
from bedplate.ledger.schema import OBJECTS
from bedplate.ledger.store import Ledger
from bedplate.ledger.troubles import Damaged
from bedplate.model.event import Draft
from bedplate.model.faults import Refused
from bedplate.model.ledgersite import Place
from bedplate.sources.site import Site
from unit.ledger_sample import anchored_site, ask, tell, write_site
from unit.story import NAMES, A, B, Story

TRIGGERS = {name: sql for (sort, name), sql in OBJECTS.items() if sort == "trigger"}
C = "sha256:" + "c" * 64


@pytest.fixture
def site(tmp_path: Path) -> Site:
    return write_site(tmp_path / "site")


@pytest.fixture(autouse=True)
def _a_third_name(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(NAMES, C, "C")


def record(site: Site, story: Story) -> None:
    with Ledger.open(site.ledger_url, actor="maria@ctl") as book:
        book.append(*(Draft(one.kind, one.subjects, one.body, one.environment) for one in story.events))


def told(site: Site) -> dict[str, dict[str, str | None]]:
    """What `bedplate status` says of every node."""
    said = CliRunner().invoke(status, ["--json"], obj=site.root, catch_exceptions=False)
    found: dict[str, dict[str, str | None]] = json.loads(said.stdout)["nodes"]
    return found


# --- the chain -------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("statement", "says"),
    [
        ("DELETE FROM event WHERE id = 5", "event 5: is missing"),
        ("DELETE FROM event WHERE id = 1", "event 1: is missing"),
        ("DELETE FROM event WHERE id BETWEEN 4 AND 7", "event 4: is missing"),
        ("UPDATE event SET actor = 'you@ctl' WHERE id = 5", "event 5: was edited"),
    ],
)
def test_a_bad_event_in_the_middle_is_damage_and_no_state_is_made_of_the_others(
    site: Site, statement: str, says: str
) -> None:
    """Only a last one that is not whole is a crash (TemporalStore#527); events that are skipped invert a status."""
    record(site, Story().resolved(A).changed(1, A, "n1", "n2").changed(2, A, "n3"))
    with closing(sqlite3.connect(site.root / "ledger.sqlite3", isolation_level=None)) as raw:
        for name in TRIGGERS:
            raw.execute(f"DROP TRIGGER {name}")
        raw.execute(statement)
        for sql in TRIGGERS.values():
            raw.execute(sql)
    with Ledger.read(site.ledger_url) as book:
        with pytest.raises(Damaged, match=says):
            projection.world(book)
        with pytest.raises(Damaged, match=says):
            fold(book.events())
    with pytest.raises(Damaged, match=f"{says}.*run: bedplate ledger verify"):
        told(site)


def test_what_comes_behind_an_event_must_follow_it(site: Site) -> None:
    record(site, Story().resolved(A).changed(1, A, "n1", "n2"))
    with Ledger.read(site.ledger_url) as book:
        everything = list(book.events())
        for after in range(len(everything) + 2):
            assert list(book.events(after=after)) == everything[after:]
        assert [one.id for one in book.events(after=2, until=4)] == [3, 4]
    with closing(sqlite3.connect(site.root / "ledger.sqlite3", isolation_level=None)) as raw:
        raw.execute("DROP TRIGGER event_no_delete")
        raw.execute("DELETE FROM event WHERE id = 4")
        raw.execute(TRIGGERS["event_no_delete"])
    with Ledger.read(site.ledger_url) as book:
        assert [one.id for one in book.events(after=4, until=4)] == []
        for after, lost in ((3, 4), (4, 4)):
            with pytest.raises(Damaged, match=f"event {lost}: is missing"):
                list(book.events(after=after))


WRITER = """
import sys
from bedplate.ledger.store import Ledger
from bedplate.model.event import Draft
nodes = tuple(f"node:gpu{n:04d}" for n in range(660))
with Ledger.open(sys.argv[1], actor=sys.argv[2]) as book:
    for n in range(4):
        book.append(Draft("step.ended", nodes, {"said": sys.argv[2] * (1 << 20), "n": n}))
"""


@pytest.mark.slow
def test_records_of_megabytes_are_whole_whoever_appends_at_once(site: Site) -> None:
    """Appends of more than 512 KiB are split elsewhere, and what several write is mixed (penguin-harness#249)."""
    writers = [subprocess.Popen([sys.executable, "-c", WRITER, site.ledger_url, name]) for name in "xyz"]
    assert [writer.wait(timeout=120) for writer in writers] == [0, 0, 0]
    with Ledger.read(site.ledger_url) as book:
        assert book.verify() == []
        events = list(book.events())
        head = book.head()
    assert sorted((one.actor, one.body["n"]) for one in events) == [(name, n) for name in "xyz" for n in range(4)]
    assert all(one.body["said"] == one.actor * (1 << 20) and len(one.subjects) == 660 for one in events)
    lines = list(export("munich", head, events, []))
    assert len(lines) == 14
    assert check(lines).damage == []


@pytest.mark.slow
def test_an_anchor_that_lost_its_end_is_not_glued_to_the_next(tmp_path: Path) -> None:
    """A torn last record swallows the one that is written behind it (elizaOS#30878)."""
    site = anchored_site(tmp_path)
    tell(site, 2)
    assert ask(site, "anchor").return_value == 0
    # In the repository somebody saved the file without its last line's end; on the host a file was cut.
    copy = tmp_path / "copy"
    git = ["git", "-c", "user.name=x", "-c", "user.email=x"]
    subprocess.run([*git, "clone", "-q", "-b", "main", tmp_path / "log.git", copy], check=True)
    (copy / "munich.jsonl").write_text((copy / "munich.jsonl").read_text()[:-9])
    subprocess.run([*git, "-C", copy, "commit", "-qam", "x"], check=True)
    subprocess.run([*git, "-C", copy, "push", "-q", "origin", "HEAD:main"], check=True)
    [file] = (tmp_path / "anchors").iterdir()
    text = file.read_text()
    file.chmod(0o600)
    file.write_text(text[:-9])
    tell(site, 2)
    both = (Place("log", "git", str(tmp_path / "log.git")), Place("host", "directory", str(tmp_path / "anchors")))
    first = places.read(both[1], "munich")
    assert (first.anchors, len(first.faults)) == ((), 1)
    kept = parse_anchor(text)
    later = replace(kept, id=4)
    for place in both:
        places.add(place, later)
        found = places.read(place, "munich")
        assert [anchor.id for anchor in found.anchors] == [4], place.name
        assert len(found.faults) == 1


# --- what nodes are, and the way back --------------------------------------------------------------


def test_every_node_of_the_fleet_has_a_state_and_none_is_the_other_way_round(site: Site) -> None:
    """bootc#2405: what is staged is shown as running. Active checks that skip a node leave nothing at all (OCI)."""
    story = Story().resolved(A).resolved(B).changed(1, A, "n1", "n2", "n3")
    story.started(2, B).of(2, "batch.admitted", B, "n1", "n2", batch=0, name="rest")
    story.of(2, "node.verified", B, "n1", verdict="PASS", facts={}, why="").of(2, "node.done", B, "n1")
    record(site, story.of(2, "node.failed", B, "n2", step="Install", why="no space"))
    found = told(site)
    assert list(found) == list(site.fleet.nodes) == ["n1", "n2", "n3", "n4"]
    said = {name: (one["status"], one["environment"], one["target"]) for name, one in found.items()}
    assert said == {
        "n1": ("verified", "B", B), "n2": ("failed", "A", B), "n3": ("verified", "A", A),
        "n4": ("never seen", None, None),
    }  # fmt: skip
    assert (found["n1"]["previous"], found["n2"]["previous"]) == (A, None)
    assert (found["n2"]["step"], found["n2"]["why"]) == ("Install", "no space")
    text = CliRunner().invoke(status, [], obj=site.root, catch_exceptions=False).stdout
    assert "never seen: n4" in text
    assert "4 nodes: 2 verified, 1 failed, 1 never seen" in text
    assert "rollout 2 to B was not ended: its controller died; the same command goes on" in text


@pytest.mark.parametrize("bad", sorted(BAD))
def test_a_node_that_is_bad_names_the_rollout_the_step_and_what_it_ran_before(site: Site, bad: Status) -> None:
    story = Story().resolved(A).resolved(B).changed(1, A, "n1").started(2, B)
    story.of(2, "batch.admitted", B, "n1", batch=0, name="rest")
    kind = {Status.FAILED: "node.failed", Status.RESCUED: "node.failed", Status.UNREACHABLE: "node.unreachable"}
    if bad in kind:
        story.of(2, kind[bad], B, "n1", step="Install", why="it broke")
    if bad is not Status.UNREACHABLE and bad is not Status.FAILED:
        story.of(2, "step.ended", B, "n1", step="Undo", result="ok")
    record(site, story)
    one = told(site)["n1"]
    assert (one["status"], one["environment"], one["target"]) == (str(bad), "A", B)
    assert str(one["rollout"]) == "2"
    assert one["step"] == ("Install" if bad in (Status.FAILED, Status.UNREACHABLE) else "Undo")


def test_a_way_back_without_a_name_goes_to_what_nodes_ran_and_not_to_what_they_failed_to_reach(site: Site) -> None:
    """bootc#946: the way back after a switch goes to the wrong deployment."""

    def previous(*told: Story) -> str:
        for path in site.root.glob("ledger.sqlite3*"):
            path.unlink()
        for story in told:
            record(site, story)
        return rollout_command._previous(site, None)

    def base() -> Story:
        return Story().resolved(A).resolved(B).resolved(C)

    everyone = ("n1", "n2", "n3", "n4")
    assert previous(base().changed(1, A, *everyone).changed(2, B, *everyone)) == "A"
    # a rollout to A is a change like any other: what nodes ran before it is B
    assert previous(base().changed(1, A, *everyone).changed(2, B, *everyone).changed(3, A, *everyone)) == "B"
    # three, and the last is left for the one before it, not for the first
    assert previous(base().changed(1, A, *everyone).changed(2, B, *everyone).changed(3, C, *everyone)) == "B"
    # one node arrived at C, three failed or are in doubt on their way there: all go back to B
    half = base().changed(1, A, *everyone).changed(2, B, *everyone).changed(3, C, "n1")
    half.started(4, C).of(4, "batch.admitted", C, "n2", "n3", "n4", batch=0, name="rest")
    half.of(4, "node.failed", C, "n2", step="Install", why="x").of(
        4, "node.unreachable", C, "n3", step="Drain", why="x"
    )
    assert previous(half) == "B"
    # the same environment once more is no other one
    assert previous(base().changed(1, A, *everyone).changed(2, B, *everyone).changed(3, B, *everyone)) == "A"
    with pytest.raises(Refused, match="no node ran another environment before"):
        previous(base().changed(1, A, *everyone))


BACK = ["/opt/venv/bin/ansible-playbook", "-i", "fleet.yml", "playbooks/rollback.yml", "-e", "{}"]


def rolled_back(story: Story, number: int, to: str, *nodes: str) -> Story:
    story.started(number, to, command=BACK).of(number, "batch.admitted", to, *nodes, batch=0, name="rest")
    for node in nodes:
        story.of(number, "node.verified", to, node, verdict="PASS", facts={}, why="")
        story.of(number, "node.done", to, node, manifest_sha256=to)
    return story.of(number, "rollout.ended", to)


def test_a_way_back_without_a_name_never_goes_forward(site: Site) -> None:
    everyone = ("n1", "n2", "n3", "n4")
    told = Story().resolved(A).resolved(B).changed(1, A, *everyone).changed(2, B, *everyone)
    record(site, rolled_back(told, 3, A, "n1", "n2"))
    said = r"rollback without ENV: n\[1-2\]: rolled back already \(rollout 3\); .* is B, .*bedplate rollout B;"
    with pytest.raises(Refused, match=said):
        rollout_command._previous(site, "n[1-2]")
    with pytest.raises(Refused, match=r"n1: rolled back already"):
        rollout_command._previous(site, "n1")
    assert rollout_command._previous(site, "n[3-4]") == "A", "these are at B, and A is behind them"
    # converged once more by a rollout, they are where the rollback brought them all the same
    record(site, Story().changed(4, A, "n1"))
    with pytest.raises(Refused, match=r"n1: rolled back already \(rollout 3\)"):
        rollout_command._previous(site, "n1")
    # forward again on purpose: now the way back is a way back
    record(site, Story().changed(5, B, "n1"))
    assert rollout_command._previous(site, "n1") == "A"


def test_a_way_back_forgets_nothing_of_what_it_left(site: Site) -> None:
    """bootc#1418: a way back drops what was staged. Here the later lock stays, and nodes say that they left it."""
    story = Story().resolved(A).resolved(B).changed(1, A, "n1", "n2").changed(2, B, "n1", "n2")
    record(site, story.started(3, B).of(3, "batch.admitted", B, "n3", batch=0, name="rest"))  # killed on its way to B
    record(site, Story().changed(4, A, "n1", "n2"))
    found = told(site)
    assert [(found[n]["environment"], found[n]["previous"]) for n in ("n1", "n2")] == [("A", B), ("A", B)]
    assert (found["n3"]["status"], found["n3"]["target"]) == ("in doubt", B)
    with Ledger.read(site.ledger_url) as book:
        assert projection.world(book).names == {A: "A", B: "B"}
        assert book.verify() == []


def test_a_clock_that_jumps_changes_the_order_of_nothing(site: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    """The order of events is their number: a node that failed last has failed, whatever the clock said then."""
    times = iter(
        ["2026-11-30T12:00:00.000000Z"] * 5 + ["1970-01-01T00:00:01.000000Z"] * 2 + ["2099-01-01T00:00:00.000000Z"]
    )
    monkeypatch.setattr("bedplate.ledger.store._now", lambda: next(times))
    for event in Story().resolved(A).changed(1, A, "n1").events:
        with Ledger.open(site.ledger_url, actor="maria@ctl") as book:
            book.append(Draft(event.kind, event.subjects, event.body, event.environment))
    with Ledger.open(site.ledger_url, actor="maria@ctl") as book:
        book.append(Draft("node.verified", ("node:n1",), {"verdict": "FAIL", "why": "driver"}, A))
    monkeypatch.undo()
    with Ledger.read(site.ledger_url) as book:
        assert book.verify() == []
    assert (told(site)["n1"]["status"], told(site)["n1"]["why"]) == ("failed", "driver")
