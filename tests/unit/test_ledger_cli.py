"""`bedplate ledger log|show|verify` over a small site with a small story."""

import json
import sqlite3
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result

from bedplate.cli.ledger import ledger as command
from bedplate.ledger import store, story
from bedplate.ledger.store import Ledger
from bedplate.model.event import Draft, Event
from bedplate.model.faults import BadInput
from bedplate.sources.site import open_site

A, B = "sha256:" + "ab12" * 16, "sha256:" + "cd34" * 16
MANIFEST = "sha256:" + "ef56" * 16
FLEET = """\
plugin: bedplate
site: test
ledger: sqlite:///ledger.sqlite3
ssh: {user: root, known_hosts: known_hosts, identity_file: /root/.ssh/id_ed25519, port: 22}
networks:
  management: {cidr: 10.77.0.0/24, addresses: {"n[1-4]": 10.77.0.11}}
  bmc: {cidr: 10.78.0.0/24}
kinds:
  gpu: {model: lab-gpu8, architecture: amd64}
racks: {r01: {positions: 42}}
groups:
  training: {nodes: "n[1-4]", kind: gpu, partition: training}
"""
NODES = "name,serial,boot_mac,nic_macs,bmc_address,rack,position\n" + "".join(
    f"n{n},S{n},02:00:00:00:00:0{n},02:00:00:00:01:0{n} 02:00:00:00:02:0{n},10.78.0.{n},r01,{n}\n" for n in range(1, 5)
)
NOTHING_LOCKED: dict[str, Any] = {"packages": {}, "image": None}
PLAN = {
    "batches": [{"name": "canary", "nodes": ["n1"]}, {"name": "rest", "nodes": ["n2", "n3"]}],
    "at_target": ["n4"], "in_doubt": [], "bad": [],
}  # fmt: skip


def lock(name: str) -> dict[str, Any]:
    image = {"name": "lab-small", "manifest_digest": MANIFEST}
    return {
        "environment": name,
        "identity": "",
        "document": {"packages": {"gpu": {"numactl": {}, "libnuma1": {}}}, "image": image},
    }


ROLLOUT = ("rollout:1", "environment:A")
STORY = [
    Draft("lock.resolved", ("environment:A",), lock("A"), A),
    Draft("lock.resolved", ("environment:B",), lock("B"), B),
    Draft("rollout.started", ROLLOUT, {
        "environment": "A", "plan": PLAN, "approved_by": "carol", "reason": "driver 570",
    }, A),
    Draft("batch.admitted", (*ROLLOUT, "node:n1"), {"batch": 0, "name": "canary"}, A),
    Draft("node.done", (*ROLLOUT, "node:n1"), {"manifest_sha256": MANIFEST}, A),
    Draft("node.failed", (*ROLLOUT, "node:n3"), {"step": "driver", "why": "no\nspace\x1b[31m left"}, A),
    Draft("step.ended", (*ROLLOUT, "node:n1", "node:n2", "node:n4"), {"step": "base", "result": "ok"}, A),
    Draft("moon.landed", ("moon:1",), {"who": "B", "n": 1}),
]  # fmt: skip


@pytest.fixture
def site(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    times = iter(f"2026-11-02T09:{minute:02}:03.000017Z" for minute in range(60))
    monkeypatch.setattr(store, "_now", lambda: next(times))
    (tmp_path / "fleet.yml").write_text(FLEET)
    (tmp_path / "nodes.csv").write_text(NODES)
    with Ledger.open(open_site(tmp_path).ledger_url, actor="carol@ctl") as book:
        book.append(*STORY)
    return tmp_path


def ask(site: Path, *words: str) -> Result:
    return CliRunner().invoke(command, words, obj=site, standalone_mode=False, catch_exceptions=False)


def lines(site: Path, *words: str) -> list[int]:
    result = ask(site, "log", *words)
    assert result.return_value == 0
    return [int(line.split()[0]) for line in result.stdout.splitlines()]


def damaged(site: Path, statement: str, trigger: str = "event_no_update") -> None:
    with closing(sqlite3.connect(site / "ledger.sqlite3", isolation_level=None)) as raw:
        (sql,) = raw.execute("SELECT sql FROM sqlite_schema WHERE name = ?", (trigger,)).fetchone()
        raw.execute(f"DROP TRIGGER {trigger}")
        raw.execute(statement)
        raw.execute(sql)


def test_the_log_tells_the_story_one_event_a_line(site: Path) -> None:
    who, image = "carol@ctl", "lab-small@ef56ef56ef56"
    a, b = "A@ab12ab12ab12", "B@cd34cd34cd34"
    plan = "A on 3 nodes: canary 1 rest 2, 1 there already, approved by carol: driver 570"
    assert ask(site, "log").stdout.splitlines() == [
        f"     1  2026-11-02 09:00:03Z  {who}  lock.resolved      -  {a}  A: 2 packages for gpu, image {image}",
        f"     2  2026-11-02 09:01:03Z  {who}  lock.resolved      -  {b}  B: 2 packages for gpu, image {image}",
        f"     3  2026-11-02 09:02:03Z  {who}  rollout.started    rollout:1  {a}  {plan}",
        f"     4  2026-11-02 09:03:03Z  {who}  batch.admitted     n1 rollout:1  {a}  batch 1 (canary)",
        f"     5  2026-11-02 09:04:03Z  {who}  node.done          n1 rollout:1  {a}  files ef56ef56ef56",
        f"     6  2026-11-02 09:05:03Z  {who}  node.failed        n3 rollout:1  {a}  driver: no space [31m left",
        f"     7  2026-11-02 09:06:03Z  {who}  step.ended         n[1-2,4] rollout:1  {a}  base: ok",
        f'     8  2026-11-02 09:07:03Z  {who}  moon.landed        moon:1  -  {{"n": 1, "who": "B"}}',
    ]


@pytest.mark.parametrize(
    ("words", "ids"),
    [
        ([], [1, 2, 3, 4, 5, 6, 7, 8]),
        (["--nodes", "n[2-3]"], [6, 7]),
        (["--nodes", "n4", "--kind", "node"], []),
        (["--env", "B"], [2]),
        (["--env", "A"], [1, 3, 4, 5, 6, 7]),
        (["--env", A], [1, 3, 4, 5, 6, 7]),
        (["--env", "cd34"], [2]),
        (["--env", "sha256:cd34cd34"], [2]),
        (["--env", "B@cd34cd34cd34"], [2]),
        (["--kind", "rollout"], [3]),
        (["--kind", "node", "--kind", "batch.admitted"], [4, 5, 6]),
        (["--since", "2026-11-02T09:05"], [6, 7, 8]),
        (["--since", "2026-11-02T10:05+01:00"], [6, 7, 8]),
        (["--since", "2026-11-03"], []),
        (["--since", "5200w"], [1, 2, 3, 4, 5, 6, 7, 8]),
        (["--last", "2"], [7, 8]),
        (["--last", "99"], [1, 2, 3, 4, 5, 6, 7, 8]),
        (["--last", "1", "--nodes", "n1", "--env", "A"], [7]),
    ],
)  # fmt: skip
def test_the_log_is_filtered(site: Path, words: list[str], ids: list[int]) -> None:
    assert lines(site, *words) == ids


@pytest.mark.parametrize(
    ("words", "says"),
    [
        (["log", "--nodes", "n[1-"], "--nodes n"),
        (["log", "--env", "C"], r"--env C: the ledger knows no such environment \(it knows: A, B\)"),
        (["log", "--env", "A@cd34"], "no such environment"),
        (["log", "--since", "99999999w"], "--since 99999999w"),
        (["log", "--since", "yesterday"], "--since yesterday: .*write: 2026-11-02"),
        (["show", "9"], "event 9: the ledger .*ledger.sqlite3 ends with event 8"),
        (["verify", "--head", "8"], "--head 8: no head"),
        (["verify", "--head", "8:sha256:abc"], "no head"),
    ],
)
def test_a_wrong_word_says_what_to_write(site: Path, words: list[str], says: str) -> None:
    with pytest.raises(BadInput, match=says):
        ask(site, *words)


def test_the_log_as_json_has_the_whole_events(site: Path) -> None:
    document = json.loads(ask(site, "log", "--json", "--last", "3").stdout)
    assert [event["id"] for event in document] == [6, 7, 8]
    with Ledger.read(open_site(site).ledger_url) as book:
        (last,) = book.events(after=7)
    assert document[2]["sha256"] == last.sha256
    assert document[2]["body"] == {"who": "B", "n": 1}
    assert (document[1]["environment"], document[1]["environment_name"]) == (A, "A")
    assert all(event["verified"] and event["damage"] == [] for event in document)


def test_show_prints_the_whole_event(site: Path) -> None:
    result = ask(site, "show", "6")
    assert result.return_value == 0
    assert f"environment  A {A}" in result.stdout
    assert "subjects     n3 rollout:1 environment:A" in result.stdout
    assert "verified     body, fields and neighbours" in result.stdout
    assert '"why": "no\\nspace\\u001b[31m left"' in result.stdout
    assert json.loads(ask(site, "show", "8", "--json").stdout)["body"] == {"who": "B", "n": 1}


def test_verify_says_in_one_line_that_the_chain_is_intact(site: Path) -> None:
    with Ledger.read(open_site(site).ledger_url) as book:
        number, digest = book.head()
    result = ask(site, "verify")
    assert (result.stdout, result.return_value) == (f"8 events, head 8 {digest}, chain intact\n", 0)
    for noted in (f"{number}:{digest}", f"{number} {digest}", f"{number}:{digest.removeprefix('sha256:')}"):
        assert ask(site, "verify", "--head", noted).return_value == 0
    document = json.loads(ask(site, "verify", "--json").stdout)
    assert document["head"] == {"id": 8, "sha256": digest}
    assert (document["events"], document["intact"], document["damage"]) == (8, True, [])


def test_verify_names_every_damage(site: Path) -> None:
    with Ledger.read(open_site(site).ledger_url) as book:
        number, digest = book.head()
    damaged(site, "UPDATE event SET actor = 'you' WHERE id = 3")
    damaged(site, "DELETE FROM event WHERE id > 6", "event_no_delete")
    result = ask(site, "verify")
    assert result.return_value == 5
    assert [line.split(": ")[0] for line in result.stdout.splitlines()] == ["event 3"]
    result = ask(site, "verify", "--head", f"{number}:{digest}", "--json")
    assert result.return_value == 5
    assert [damage["event_id"] for damage in json.loads(result.stdout)["damage"]] == [3, 7]


def test_a_damaged_event_is_always_shown_and_marked(site: Path) -> None:
    damaged(site, "UPDATE event SET actor = 'you' WHERE id = 3")
    damaged(site, """UPDATE event SET body = '{"a": 1}' WHERE id = 5""")
    result = ask(site, "log", "--kind", "moon")
    assert result.return_value == 5
    shown = result.stdout.splitlines()
    assert [line.split()[0] for line in shown] == ["3", "5", "8"]
    assert "DAMAGED: was edited" in shown[0]
    assert shown[1].startswith("     5  DAMAGED: body: not in canonical form")
    assert "2 damaged (run: bedplate ledger verify)" in result.stderr
    result = ask(site, "show", "3")
    assert result.return_value == 5
    assert "DAMAGED      was edited" in result.stdout
    assert [event["verified"] for event in json.loads(ask(site, "log", "--json", "--last", "4").stdout)] == [
        False,
        True,
        True,
        True,
    ]


def test_a_site_without_a_ledger_has_an_empty_one(site: Path) -> None:
    for file in site.glob("ledger.sqlite3*"):
        file.unlink()
    assert ask(site, "log").stdout == ""
    result = ask(site, "verify")
    assert result.return_value == 0
    assert "0 events" in result.stdout
    assert "there is no" in result.stdout
    assert not list(site.glob("ledger.sqlite3*"))


def event(kind: str, body: dict[str, Any]) -> Event:
    return Event(1, "2026-11-02T09:14:03.000017Z", "me@ctl", kind, (), None, body, "", "", "")


@pytest.mark.parametrize("kind", [*story.TELL, "no.such.kind"])
def test_a_body_of_another_shape_is_shown_raw(kind: str) -> None:
    for body in ({"odd": [1, {"x": None}]}, {"nodes": 3, "batch": "x", "plan": [], "document": None, "checks": 7}):
        assert story.summary(event(kind, body)) == json.dumps(body, sort_keys=True)
    assert story.summary(event(kind, {})) == ""


@pytest.mark.parametrize(
    ("kind", "body", "says"),
    [
        ("rollout.stopped", {"batch": 1, "name": "small", "reason": "2 failed"}, "batch 2 (small): 2 failed"),
        ("rollout.ended", {"nodes": {"verified": 7, "failed": 1}}, "1 failed, 7 verified"),
        ("rollout.abandoned", {"found_by": 4}, "its process was gone when rollout 4 began"),
        ("batch.held", {"batch": 1, "reason": "2 failed"}, "batch 2: 2 failed"),
        ("node.unreachable", {"step": "base", "why": "no route"}, "base: no route"),
        ("node.verified", {"verdict": "FAIL", "checks": {"a": 1, "b": 2}, "why": "a"}, "FAIL, 2 checks: a"),
        (
            "image.built",
            {"name": "x", "repository": "r/x", "manifest_digest": MANIFEST, "squashfs": {"sha256": A, "size": 7}},
            "x@ef56ef56ef56, r/x, squashfs ab12ab12ab12, 7 bytes",
        ),
        (
            "image.placed",
            {"image": "x", "manifest_digest": MANIFEST, "result": "copied", "path": "/x.sqsh"},
            "x@ef56ef56ef56: copied, /x.sqsh",
        ),
        (
            "image.distributed",
            {
                "image": "x", "manifest_digest": MANIFEST, "size": 9, "not_placed": {"n3": "slow"},
                "moves": [{"what": "image", "nodes": 3, "engine": "torrent", "source_bytes": 12}],
            },
            "x@ef56ef56ef56: image to 3 nodes by torrent, 12 bytes left the controller; not on n3",
        ),
        ("image.collected", {"removed": ["a", "b"], "freed": 7}, "2 files, 7 bytes"),
        ("lock.resolved", {"environment": "A", "document": NOTHING_LOCKED}, "A: no packages, no image"),
    ],
)  # fmt: skip
def test_each_kind_says_its_own(kind: str, body: dict[str, Any], says: str) -> None:
    assert story.summary(event(kind, body)) == says


def test_a_line_is_printable_and_has_an_end() -> None:
    assert story.printable("a\x1b[2J\n\tb\u202e") == "a [2J b"
    assert len(story.printable("x" * 500)) == story.WIDTH
