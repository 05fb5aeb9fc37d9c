"""What is kept of a ledger: the same as what its events say, whatever happens to the file; and the questions."""

import os
import random
import sqlite3
import time
from contextlib import closing
from pathlib import Path

import pytest

from bedplate.decide.fold import NodeState, Status, fold
from bedplate.decide.ledgerhistory import Change, History
from bedplate.decide.ledgerquestions import chain_of, sentence
from bedplate.ledger import comparison, store
from bedplate.ledger import projection as projections
from bedplate.ledger.comparison import Comparison
from bedplate.ledger.projection import projection, world
from bedplate.ledger.store import Ledger
from bedplate.ledger.troubles import Damaged
from bedplate.model.event import Draft
from bedplate.model.faults import BadInput
from bedplate.sources.ledgeraddress import ledger_address
from bedplate.sources.site import Site, open_site
from unit.ledger_sample import FLEET, as_json, ask, write_site
from unit.story import NAMES, A, B, Story


def drafts(story: Story) -> list[Draft]:
    return [Draft(event.kind, event.subjects, event.body, event.environment) for event in story.events]


def random_story(seed: int, length: int) -> Story:
    choose, story = random.Random(seed), Story()  # noqa: S311
    story.resolved(A).resolved(B)
    for number in range(1, length):
        env, nodes = choose.choice([A, B]), choose.sample(["n1", "n2", "n3", "n4"], 2)
        story.started(number, env).of(number, "batch.admitted", env, *nodes, batch=0, name="rest")
        match choose.randrange(5):
            case 0:
                story.of(number, "node.failed", env, nodes[0], step="driver", why="no space")
            case 1:
                story.of(number, "batch.held", env, *nodes, batch=0, reason="budget")
            case 2:
                story.of(number, "step.ended", env, *nodes, step="base", result="ok")
            case _:
                for node in nodes:
                    story.of(number, "node.verified", env, node, verdict="PASS", facts={"f": env}, why="")
                    story.of(number, "node.done", env, node, manifest_sha256=env)
                story.of(number, "rollout.ended", env)
        story.verified(choose.choice(nodes), choose.choice([A, B]), choose.choice(["PASS", "FAIL"]))
    return story


@pytest.fixture(autouse=True)
def small(monkeypatch: pytest.MonkeyPatch) -> None:
    """A file is kept of every ledger, and chunks are short."""
    monkeypatch.setattr(projections, "SMALL", 0)
    monkeypatch.setattr(projections, "SAVE_AFTER", 5)
    monkeypatch.setattr(projections, "CHUNK", 7)
    monkeypatch.setattr(projections, "BLOCK", 4)


@pytest.fixture
def site(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Site:
    times = iter(f"2026-11-02T{n // 3600:02}:{n // 60 % 60:02}:{n % 60:02}.000000Z" for n in range(86400))
    monkeypatch.setattr(store, "_now", lambda: next(times))
    return write_site(tmp_path / "site")


def tell(site: Site, story: Story) -> None:
    with Ledger.open(site.ledger_url, actor="carol@ctl") as book:
        book.append(*drafts(story))


def kept_file(site: Site) -> Path:
    return site.root / "ledger.sqlite3-folded"


@pytest.mark.parametrize("seed", range(6))
def test_what_is_kept_is_what_the_events_say_however_they_came(site: Site, seed: int) -> None:
    told, choose = drafts(random_story(seed, 25)), random.Random(seed)  # noqa: S311
    with Ledger.open(site.ledger_url, actor="carol@ctl") as book:
        while told:
            count = choose.randint(1, 20)
            book.append(*told[:count])
            told = told[count:]
            with projection(book) as kept:
                assert kept.head == book.head()
                assert kept.world() == world(book) == fold(book.events())
        with Comparison(site.ledger_url, book) as compared:
            assert book.examine(heads=compared.heads).damage == ()
            assert compared.wrong() == []
    assert kept_file(site).stat().st_mode & 0o077 == 0


def test_the_history_says_who_a_node_was_after_every_event() -> None:
    story = random_story(3, 20)
    history = History()
    fold(story.events, changed=history.changed)
    rows = history.take()
    for event in story.events:
        then = fold(story.events[: event.id])
        for node in ("n1", "n2", "n3", "n4"):
            last = [one for one in rows if one.node == node and one.event <= event.id][-1:]
            state = then.state(node)
            assert [(one.status, one.runs) for one in last] == ([(state.status, state.runs)] if last else [])
            assert last or state == NodeState()


def test_a_few_events_more_are_folded_without_a_write(site: Site) -> None:
    tell(site, random_story(1, 10))
    with Ledger.open(site.ledger_url) as book:
        world(book)
        before = kept_file(site).read_bytes()
        book.append(Draft("node.verified", ("node:n9",), {"verdict": "PASS"}, A))
        assert "n9" in world(book).nodes
        assert kept_file(site).read_bytes() == before


@pytest.mark.parametrize("left", ["nothing", "empty", "no database", "another database", "another version", "cut"])
def test_a_kept_file_that_is_of_no_use_is_made_anew(site: Site, left: str) -> None:
    tell(site, random_story(1, 12))
    with Ledger.read(site.ledger_url) as book:
        right = fold(book.events())
        assert world(book) == right
        path = kept_file(site)
        if left == "nothing":
            path.unlink()
        elif left == "empty":
            path.write_bytes(b"")
        elif left == "no database":
            path.write_bytes(b"x" * 5000)
        elif left == "cut":
            os.truncate(path, 4096)
        else:
            with closing(sqlite3.connect(path, isolation_level=None)) as raw:
                raw.execute("UPDATE meta SET version = 'x'" if left == "another version" else "DROP TABLE meta")
        assert world(book) == right
        with projection(book) as kept:
            assert kept.world() == right


@pytest.mark.parametrize(
    ("statement", "says"),
    [
        ("UPDATE node SET state = json_set(state, '$.status', 'verified', '$.runs', 'x') WHERE name = 'n1'", "node n1"),
        ("DELETE FROM node WHERE name = 'n2'", "node n2"),
        ("UPDATE history SET runs = NULL WHERE seq = (SELECT min(seq) FROM history WHERE runs)", "its history"),
        ("DELETE FROM history WHERE seq = 3", "its history"),
        ("UPDATE rollout SET state = json_set(state, '$.outcome', 'ended') WHERE number = 1", "rollout 1"),
        ("UPDATE environment SET name = 'C' WHERE name = 'A'", "environment"),
        ("UPDATE node SET state = 'x'", "cannot be read"),
        ("DROP TABLE history", "cannot be read"),
    ],
)
def test_verify_names_what_of_it_is_not_what_the_events_say(site: Site, statement: str, says: str) -> None:
    story = Story().resolved(A).started(1, A).of(1, "batch.admitted", A, "n1", batch=0, name="x")
    tell(site, story.changed(2, A, "n2", "n3"))
    assert ask(site, "verify").return_value == 0
    ask(site, "rebuild")
    assert ask(site, "verify").return_value == 0
    with closing(sqlite3.connect(kept_file(site), isolation_level=None)) as raw:
        raw.execute(statement)
    found = ask(site, "verify")
    assert found.return_value == 5
    assert says in found.stdout
    assert "run: bedplate ledger rebuild" in found.stdout
    assert ask(site, "rebuild").return_value is None
    assert ask(site, "verify").return_value == 0


@pytest.mark.slow
def test_of_a_large_ledger_another_process_folds_and_says_the_same(site: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(comparison, "LARGE", 1)
    tell(site, random_story(1, 30))
    ask(site, "rebuild")
    with Ledger.read(site.ledger_url) as book, Comparison(site.ledger_url, book) as compared:
        assert book.examine(heads=compared.heads).damage == ()
        assert compared.wrong() == []
    with closing(sqlite3.connect(kept_file(site), isolation_level=None)) as raw:
        raw.execute("DELETE FROM node WHERE name = 'n2'")
    with Ledger.read(site.ledger_url) as book, Comparison(site.ledger_url, book) as compared:
        assert [one for one in compared.wrong() if "node n2 is not what the events say" in one]


def test_an_old_copy_of_the_ledger_is_refused_by_what_was_seen_of_the_newer_one(site: Site) -> None:
    tell(site, random_story(1, 10))
    path = site.root / "ledger.sqlite3"
    copy = path.read_bytes()
    tell(site, random_story(2, 10))
    with Ledger.read(site.ledger_url) as book:
        world(book)
    for left in site.root.glob("ledger.sqlite3-[ws]*"):
        left.unlink()
    path.write_bytes(copy)
    with Ledger.read(site.ledger_url) as book:
        for way in (world, lambda book: projection(book).__enter__()):
            with pytest.raises(Damaged, match="an old copy was put in its place, its tail was cut off"):
                way(book)
    found = ask(site, "verify")
    assert found.return_value == 5
    assert "the tail was cut off behind event" in found.stdout
    assert "the kept projection" in found.stdout
    ask(site, "rebuild")
    assert ask(site, "verify").return_value == 0, "a person said that it is meant"


def test_a_copy_in_memory_uses_what_was_kept_and_keeps_nothing(site: Site) -> None:
    tell(site, random_story(1, 15))
    with Ledger.read(site.ledger_url) as book:
        world(book)
    before = kept_file(site).read_bytes()
    with Ledger.scratch(site.ledger_url) as book:
        book.append(*drafts(random_story(5, 15)))
        assert world(book) == fold(book.events())
        tell(site, random_story(6, 15))
        with Ledger.read(site.ledger_url) as newer:
            world(newer)
        assert world(book) == fold(book.events()), "what was kept since is of another future"
    assert kept_file(site).read_bytes() != before


def test_who_cannot_write_beside_the_ledger_still_gets_an_answer(site: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    tell(site, random_story(1, 15))
    with Ledger.read(site.ledger_url) as book:
        with projection(book):
            pass
        tell(site, random_story(2, 15))

        def refused(*_: object) -> None:
            raise sqlite3.OperationalError("attempt to write a readonly database")

        monkeypatch.setattr(projections, "_brought_up", refused)
        with projection(book) as kept:
            assert kept.path is None
            assert kept.world() == fold(book.events())
            assert kept.head == book.head()


def test_two_processes_that_fold_at_once_both_get_the_answer(site: Site) -> None:
    tell(site, random_story(1, 60))
    children = []
    for _ in range(4):
        pid = os.fork()
        if pid == 0:
            try:
                with Ledger.read(site.ledger_url) as book, projection(book) as kept:
                    os._exit(0 if kept.world() == fold(book.events()) else 1)
            finally:
                os._exit(2)
        children.append(pid)
    assert [os.waitpid(pid, 0)[1] for pid in children] == [0] * 4


@pytest.mark.slow
def test_a_process_killed_while_it_folds_leaves_no_half_projection(site: Site) -> None:
    tell(site, random_story(1, 150))
    choose = random.Random(4)  # noqa: S311
    for _ in range(8):
        kept_file(site).unlink(missing_ok=True)
        pid = os.fork()
        if pid == 0:
            with Ledger.read(site.ledger_url) as book, projection(book):
                os._exit(0)
        time.sleep(choose.uniform(0, 0.15))
        os.kill(pid, 9)
        os.waitpid(pid, 0)
        with Ledger.read(site.ledger_url) as book:
            assert world(book) == fold(book.events())
            with Comparison(site.ledger_url, book) as compared:
                book.examine(heads=compared.heads)
                assert compared.wrong() == []


# --- questions ------------------------------------------------------------------------------------------


@pytest.fixture
def asked(site: Site) -> Site:
    """Nodes n1 to n3 got A, then n1 B; n2 failed on the way to B; n3 was never tried again."""
    story = Story().resolved(A).resolved(B).changed(1, A, "n1", "n2", "n3")  # events 3 to 11
    story.changed(2, B, "n1")  # 12 to 16
    story.started(3, B).of(3, "batch.admitted", B, "n2", batch=0, name="rest")  # 17, 18
    story.of(3, "step.ended", B, "n2", step="base", result="ok")
    story.of(3, "node.failed", B, "n2", step="driver", why="no space")
    story.verified("n1", B).verified("n1", B)
    tell(site, story)
    return site


def test_at_a_time_each_node_ran_what_the_events_up_to_then_say(asked: Site) -> None:
    with Ledger.read(asked.ledger_url) as book:
        events = list(book.events())
    for event in events:
        then = fold(events[: event.id])
        answer = as_json(ask(asked, "at", event.at, "--json"))
        assert answer["event"] == event.id
        for node in ("n1", "n2", "n3"):
            said, state = answer["nodes"][node], then.state(node)
            found = (said["status"], said["runs"]) if said else (Status.NEVER, None)
            assert found == (state.status, state.runs)
    early = ask(asked, "at", "2026-11-01", "--nodes", "n[1-2]")
    assert "no event is as old as 2026-11-01" in early.stderr
    assert early.stdout.splitlines()[1] == "n1\tnever seen\t-\t-"


def test_a_clock_that_went_back_is_said(site: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    times = iter([f"2026-11-02T{hour:02}:00:00.000000Z" for hour in (1, 2, 9, 9, 3, 4, 5, 6, 10, 11)])
    monkeypatch.setattr(store, "_now", lambda: next(times))
    with Ledger.open(site.ledger_url) as book:
        for number in range(10):
            book.append(Draft("node.verified", (f"node:n{number}",), {"verdict": "PASS"}, A))
    answer = as_json(ask(site, "at", "2026-11-02T05:30", "--json"))
    assert (answer["event"], answer["event_of_a_later_time"]) == (7, 3)
    assert "the clock went back: event 3" in ask(site, "at", "2026-11-02T05:30").stderr
    assert as_json(ask(site, "at", "2026-11-02T02:30", "--json"))["event_of_a_later_time"] is None
    assert as_json(ask(site, "at", "2026-11-02T10:30", "--json")) | {"nodes": 0, "time": 0} == {
        "event": 9, "event_at": "2026-11-02T10:00:00.000000Z", "event_of_a_later_time": None, "nodes": 0, "time": 0,
    }  # fmt: skip


def test_who_runs_an_environment_now_and_then(asked: Site) -> None:
    assert as_json(ask(asked, "who", "A", "--json"))["nodes"] == {"n2": "failed", "n3": "verified"}
    assert as_json(ask(asked, "who", B[:20], "--json"))["nodes"] == {"n1": "verified"}
    assert as_json(ask(asked, "who", "A", "--at", "2026-11-02T00:00:10", "--json"))["nodes"] == {
        "n1": "verified", "n2": "verified", "n3": "verified",
    }  # fmt: skip
    assert ask(asked, "who", "B").stdout == "1 verified: n1\n1 nodes run B\n"
    with pytest.raises(BadInput, match=r"C: the ledger knows no such environment \(it knows: A, B\)"):
        ask(asked, "who", "C")


def test_explain_tells_the_chain_of_events(asked: Site) -> None:
    answer = as_json(ask(asked, "explain", "n2", "--json"))
    assert answer["sentence"].startswith(f"n2 failed at 'driver' (to B {B[:19]}; before: A {A[:19]}): no space")
    assert [event["kind"] for event in answer["events"]] == ["batch.admitted", "step.ended", "node.failed"]
    answer = as_json(ask(asked, "explain", "n1", "--json"))
    assert answer["runs"] == {"environment": "B", "identity": B}
    assert [event["kind"] for event in answer["events"]] == [
        "batch.admitted", "node.verified", "node.done", "node.verified",
    ]  # fmt: skip
    assert "n3 runs A" in ask(asked, "explain", "n3").stdout
    with pytest.raises(BadInput, match="n4: the fleet has it, and no event of a change"):
        ask(asked, "explain", "n4")


def test_a_node_in_doubt_is_explained_by_how_far_it_came(site: Site) -> None:
    story = Story().resolved(A).started(1, A).of(1, "batch.admitted", A, "n1", "n2", batch=0, name="x")
    tell(site, story.of(1, "step.ended", A, "n1", step="base", result="ok").of(1, "step.ended", A, "n2", step="drain"))
    answer = as_json(ask(site, "explain", "n1", "--json"))
    assert "rollout 1 to A" in answer["sentence"]
    assert "recorded no end at 'base'" in answer["sentence"]
    assert [event["kind"] for event in answer["events"]] == ["batch.admitted", "step.ended"]


@pytest.mark.parametrize("status", list(Status))
def test_every_status_has_a_sentence(status: Status) -> None:
    assert "n1" in sentence("n1", NodeState(status=status, runs=A, target=B, why="a\nb"), NAMES)


def test_a_node_that_was_only_verified_is_explained_by_the_first_and_the_last() -> None:
    changes = [Change("n1", event, "verified", None) for event in range(1, 20)]
    assert chain_of(changes, 40) == (0, None, [1, 15, 16, 17, 18, 19, 40])
    assert chain_of([], 0) == (0, None, [])


# --- where the ledger is -----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "said",
    ["sqlite:///ledger.sqlite3", "sqlite:////srv/a.sqlite3", '"sqlite:///b c.sqlite3"', "sqlite:///c.sqlite3 # here",
     "postgresql://bedplate@db/ledger"],
)  # fmt: skip
def test_the_address_found_in_one_line_is_the_one_that_the_site_says(tmp_path: Path, said: str) -> None:
    site = write_site(tmp_path / "site", said)
    assert ledger_address(site.root) == open_site(site.root).ledger_url


def test_a_site_that_is_wrong_is_told_by_the_reader_of_sites(tmp_path: Path) -> None:
    with pytest.raises(BadInput, match="no site"):
        ledger_address(tmp_path)
    write_site(tmp_path)
    (tmp_path / "fleet.yml").write_text(FLEET.replace("ledger: {ledger}\n", "").format())
    with pytest.raises(BadInput, match='"ledger" is missing'):
        ledger_address(tmp_path)


def test_an_empty_ledger_is_an_empty_world(site: Site) -> None:
    with Ledger.read(site.ledger_url) as book:
        assert world(book) == fold([])
        with projection(book) as kept:
            assert kept.moment(book, "2026-11-02T00:00:00.000000Z").event == 0
    assert as_json(ask(site, "at", "1h", "--json"))["nodes"] == {}
