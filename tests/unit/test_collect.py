"""`bedplate collect` over real ssh, with the program run for real; and what the ledger keeps of it."""

import json
import os
import signal
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result

from bedplate.cli.collect import collect, gather
from bedplate.decide.fold import Status
from bedplate.ledger import story
from bedplate.ledger.store import Ledger
from bedplate.model.event import Draft
from bedplate.model.faults import BadInput, BedplateError, NodesFailed, Refused
from bedplate.observe import factbook
from bedplate.observe.collect import COMMAND, Collected, program, questions, understood
from bedplate.ssh import Answer
from unit.facts_sample import parsed, sample
from unit.fleet_of_roots import NAMES, Fleet, fleet
from unit.lock_sample import set_at
from unit.site_sample import replace_in

pytestmark = pytest.mark.slow  # every test starts programs


@pytest.fixture
def nodes(tmp_path: Path) -> Iterator[Fleet]:
    with fleet(tmp_path) as made:
        yield made


def run(made: Fleet, *words: str) -> Result:
    return CliRunner().invoke(collect, ["n[1-3]", *words], obj=made.root)


def test_every_node_is_asked_by_one_command_and_recorded(nodes: Fleet) -> None:
    result = run(nodes)
    assert result.exit_code == 0, (result.output, result.exception)
    assert sorted(nodes.commands) == [(name, COMMAND) for name in NAMES]
    events = nodes.events(factbook.COLLECTED)
    assert sorted(event.subjects for event in events) == [(f"node:{name}",) for name in NAMES]
    assert "n[1-3]\trecorded\t4\t6.8.0-50-generic\t570.133.20\t" in result.output
    assert not nodes.events(factbook.SEEN), "these facts are small"


def test_facts_are_read_from_the_ledger_as_they_were_said(nodes: Fleet) -> None:
    document = json.loads(run(nodes, "--json").stdout)
    with Ledger.read(nodes.site.ledger_url) as ledger:
        facts = factbook.read(ledger, factbook.newest(ledger, NAMES))
    assert {name: found.document for name, found in facts.items()} == {
        name: document["nodes"][name]["facts"] for name in NAMES
    }


def test_a_node_that_is_what_it_was_costs_a_line(nodes: Fleet) -> None:
    run(nodes)
    (nodes.roots["n2"] / "etc/nccl.conf").write_text("NCCL_DEBUG=INFO\n")
    (nodes.roots["n2"] / "etc/os-release").write_text('ID=debian\nVERSION_ID="14"\n')
    result = run(nodes)
    first, second = nodes.events(factbook.COLLECTED)[:3], nodes.events(factbook.COLLECTED)[3:]
    ids = {event.subjects[0]: event.id for event in first}
    same = {event.subjects[0]: event.body.get("same_as") for event in second}
    assert same == {"node:n1": ids["node:n1"], "node:n2": None, "node:n3": ids["node:n3"]}
    assert "n[1,3]\tas before" in result.output
    assert "n2\trecorded" in result.output
    run(nodes)
    third = {event.subjects[0]: event.body.get("same_as") for event in nodes.events(factbook.COLLECTED)[6:]}
    assert third == {"node:n1": ids["node:n1"], "node:n2": second[[e.subjects[0] for e in second].index("node:n2")].id,
                     "node:n3": ids["node:n3"]}  # fmt: skip


def test_a_node_that_does_not_answer_is_recorded_and_fails(nodes: Fleet) -> None:
    nodes.instead["n2"] = "echo 'bash: python3: command not found' >&2; exit 127"
    nodes.servers["n3"].listening.close()
    replace_in(nodes.root / "known_hosts", "127.0.2.3", "127.0.2.33")
    result = run(nodes)
    assert isinstance(result.exception, NodesFailed)
    assert str(result.exception) == "n[2-3]: no facts"
    why = {event.subjects[0]: event.body["why"] for event in nodes.events(factbook.LOST)}
    assert why["node:n2"] == "ended with 127: bash: python3: command not found: no python3 on the node"
    assert why.keys() == {"node:n2", "node:n3"}
    assert len(nodes.events(factbook.COLLECTED)) == 1
    assert "n3: " in result.stderr


def test_a_node_whose_host_key_is_another_is_sent_nothing(nodes: Fleet) -> None:
    line = nodes.servers["n1"].known_line("127.0.2.2")  # n1's key for n2's address
    text = (nodes.root / "known_hosts").read_text().splitlines(keepends=True)
    (nodes.root / "known_hosts").write_text("".join(row if "127.0.2.2]" not in row else line for row in text))
    result = run(nodes)
    assert isinstance(result.exception, NodesFailed)
    assert "changed" in nodes.events(factbook.LOST)[0].body["why"]
    assert "n2" not in [name for name, _ in nodes.commands]


@pytest.mark.parametrize(
    ("instead", "told"),
    [
        ("true", "nothing was said"),
        ("echo Welcome", "no JSON that can be read"),
        ("echo '{\"schema\": 1}'", '"boot_id" is missing'),
        ("echo '{\"schema\": 9}'", "schema: Input should be 1"),
        ("head -c 50", "no JSON that can be read"),  # what was sent comes back
    ],
)
def test_an_answer_that_is_none_is_no_facts(instead: str, told: str, nodes: Fleet) -> None:
    nodes.instead["n1"] = instead
    result = run(nodes)
    assert isinstance(result.exception, NodesFailed)
    (lost,) = nodes.events(factbook.LOST)
    assert told in lost.body["why"]


def test_collecting_says_nothing_of_what_a_node_runs(nodes: Fleet) -> None:
    identity = nodes.lock()
    nodes.instead["n2"] = "exit 1"
    before = nodes.world()
    run(nodes)
    for name in NAMES:
        assert nodes.world().state(name) == before.state(name)
        assert (nodes.world().state(name).status, nodes.world().state(name).runs) == (Status.UNVERIFIED, identity)


def test_what_answered_before_an_interrupt_is_recorded(nodes: Fleet, monkeypatch: pytest.MonkeyPatch) -> None:
    def interrupted(*_: object, report: Any, **__: object) -> None:
        report(Collected("n1", parsed()))
        os.kill(os.getpid(), signal.SIGINT)

    monkeypatch.setattr("bedplate.cli.collect.ask", interrupted)
    before = signal.signal(signal.SIGINT, signal.default_int_handler)  # in the background it may be ignored
    try:
        with pytest.raises(KeyboardInterrupt):
            gather(nodes.site, NAMES, width=8, timeout_s=60, hash_images=False)
    finally:
        signal.signal(signal.SIGINT, before)
    assert [event.subjects for event in nodes.events(factbook.COLLECTED)] == [("node:n1",)]


def test_an_example_site_contacts_nobody(nodes: Fleet) -> None:
    replace_in(nodes.root / "fleet.yml", "site: sample", "site: sample\nexample: true")
    assert isinstance(run(nodes).exception, Refused)
    assert not nodes.commands
    assert not (nodes.root / "ledger.sqlite3").exists()


def test_a_node_that_the_fleet_does_not_have_is_refused_by_name(nodes: Fleet) -> None:
    result = CliRunner().invoke(collect, ["n[3-4]"], obj=nodes.root)
    assert isinstance(result.exception, BadInput)
    assert str(result.exception).startswith("NODESET n[3-4]: ")
    assert "fleet.yml has no n4 (nearest: n3" in str(result.exception)


def test_images_are_hashed_on_request(nodes: Fleet) -> None:
    found = json.loads(run(nodes, "--hash-images", "--json").stdout)["nodes"]["n1"]["facts"]["images"]
    assert [image["sha256"] is not None for image in found["files"].values()] == [True]


# --- the ledger ----------------------------------------------------------------------------------


@pytest.fixture
def ledger(tmp_path: Path) -> Iterator[Ledger]:
    with Ledger.open(f"sqlite:///{tmp_path}/ledger.sqlite3") as opened:
        yield opened


def many() -> dict[str, Any]:
    """Facts with as many packages as make them worth sharing."""
    rows = [[f"p{n:04d}", "1.0-1", "amd64", "install", "installed"] for n in range(100)]
    return set_at(sample(), "packages", [*sample()["packages"], *rows])


def of(node: str, document: dict[str, Any] | None = None) -> Collected:
    return Collected(node, parsed(document or many(), node))


def test_what_many_nodes_have_in_common_is_recorded_once(ledger: Ledger) -> None:
    factbook.record(ledger, [of(f"n{n}", set_at(many(), "boot_id", f"boot {n}")) for n in range(20)])
    (seen,) = ledger.events(kinds=[factbook.SEEN])
    assert seen.body["part"] == "packages"
    factbook.record(ledger, [of("n30"), of("n31", set_at(many(), "packages/4/1", "1.0-2"))])
    assert len(list(ledger.events(kinds=[factbook.SEEN]))) == 2
    facts = factbook.read(ledger, factbook.newest(ledger, ["n7", "n30", "n31"]))
    assert facts["n7"].document == set_at(many(), "boot_id", "boot 7")
    assert facts["n31"].packages != facts["n30"].packages == facts["n7"].packages


def test_660_nodes_that_did_not_change_cost_half_a_megabyte(ledger: Ledger) -> None:
    fleet_of = [of(f"n{n}") for n in range(660)]
    factbook.record(ledger, fleet_of)
    events = factbook.record(ledger, fleet_of)
    assert sum(len(json.dumps(event.body)) for event in events.values()) < 500_000 / 2
    assert ledger.verify() == []


def test_only_the_time_may_differ_between_facts_that_are_the_same(ledger: Ledger) -> None:
    later = set_at(many(), "time", {"utc_ms": 1893524443123, "offset_s": 3600})
    factbook.record(ledger, [of("n1")])
    assert "same_as" in factbook.record(ledger, [of("n1", later)])["n1"].body
    assert factbook.read(ledger, factbook.newest(ledger, ["n1"]))["n1"].document == later
    assert "same_as" not in factbook.record(ledger, [of("n1", set_at(later, "boot_id", "x"))])["n1"].body
    assert "same_as" not in factbook.record(ledger, [of("n1", later)])["n1"].body, "only the newest is compared"


def test_the_newest_is_found_however_far_back_it_lies(ledger: Ledger, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(factbook, "WINDOW", 2)
    factbook.record(ledger, [of("n1"), of("n2"), of("n3")])
    factbook.record(ledger, [of("n2"), Collected("n3", None, "no route")])
    ledger.append(*(Draft("node.verified", ("node:n1",), {}) for _ in range(40)))
    factbook.record(ledger, [Collected("n2", None, "no route"), of("n3")])
    found = factbook.newest(ledger, ["n1", "n2", "n3", "n4"])
    events = list(ledger.events(kinds=[factbook.COLLECTED, factbook.LOST]))
    of_node = {name: [e for e in events if e.subjects == (f"node:{name}",)] for name in ("n1", "n2", "n3")}
    assert found == {
        "n1": factbook.Entry(of_node["n1"][0]),
        "n2": factbook.Entry(of_node["n2"][1], of_node["n2"][2]),
        "n3": factbook.Entry(of_node["n3"][2]),
    }


def test_a_node_that_never_answered_has_no_facts(ledger: Ledger) -> None:
    factbook.record(ledger, [Collected("n1", None, "x" * 5000)])
    entries = factbook.newest(ledger, ["n1"])
    assert entries["n1"].collected is None
    assert factbook.read(ledger, entries) == {}
    assert entries["n1"].lost is not None
    assert len(entries["n1"].lost.body["why"]) == 2000


@pytest.mark.parametrize("names", [{"same_as": 1}, {"same_as": 99}, {"facts": {}, "shared": {"packages": "sha256:0"}}])
def test_an_event_that_names_what_the_ledger_does_not_hold_is_told(names: dict[str, Any], ledger: Ledger) -> None:
    ledger.append(Draft("lock.resolved", ("environment:A",), {}))
    ledger.append(Draft(factbook.COLLECTED, ("node:n1",), {"facts_sha256": "sha256:1", "time": {}} | names))
    with pytest.raises(BedplateError, match="ledger: event 2 names"):
        factbook.read(ledger, factbook.newest(ledger, ["n1"]))


def test_a_line_of_the_ledger_says_what_was_collected(ledger: Ledger) -> None:
    factbook.record(ledger, [of("n1"), Collected("n2", None, "no route")])
    factbook.record(ledger, [Collected("n1", parsed(set_at(many(), "reboot", {"unknown": "?"})), clock_off_ms=-90_000)])
    factbook.record(ledger, [Collected("n1", parsed(set_at(many(), "reboot", {"unknown": "?"})))])
    said = [story.summary(event) for event in ledger.events()]
    assert said[0] == "packages, 104 entries, shared by nodes"
    assert said[1].startswith("facts ")
    assert said[2] == "no route"
    assert said[3].endswith(", clock -90000 ms off, not known: reboot")
    assert said[4].endswith(", the same as event 4")


# --- what is asked, and what is made of answers --------------------------------------------------


def test_every_file_and_unit_that_a_role_may_bring_is_asked_for() -> None:
    sources = {
        "roles/a/files.yml": b"- {path: /etc/a, template: a.j2, mode: '0644'}\n", "roles/a/templates/a.j2": b"",
        "roles/a/role.yml": b"layer: os\nunits: [a.service]\n", "roles/b/role.yml": b"layer: os\nunits: [b.timer]\n",
    }  # fmt: skip
    asked = questions(sources)
    assert (asked["paths"], asked["units"], asked["hash_images"]) == (["/etc/a"], ["a.service", "b.timer"], False)


def test_questions_with_quotes_arrive_as_they_are() -> None:
    text = program({"paths": ["'\"\\ \n {} \U0001f600"]}).decode()
    call = text.rpartition("\nmain(json.loads(")[2].removesuffix("))\n")
    assert json.loads(eval(call)) == {"paths": ["'\"\\ \n {} \U0001f600"]}  # noqa: S307


def answer(document: dict[str, Any]) -> Answer:
    return Answer("n1", 0, json.dumps(document).encode(), b"", None)


@pytest.mark.parametrize(("utc_ms", "off"), [(1000, 0), (1500, 0), (2000, 0), (999, -1), (500, -500), (2001, 1)])
def test_a_clock_is_off_by_as_much_as_it_surely_is(utc_ms: int, off: int) -> None:
    found = understood(answer(set_at(sample(), "time/utc_ms", utc_ms)), 1000, 2000)
    assert found.clock_off_ms == off


def test_a_node_without_a_clock_is_understood() -> None:
    assert understood(answer(set_at(sample(), "time", {"unknown": "?"})), 1000, 2000).clock_off_ms == 0


def test_a_node_that_was_given_up_has_no_facts_and_says_why() -> None:
    lost = Answer("n1", None, json.dumps(sample()).encode(), b"", "running the command: no end after 90 s")
    assert understood(lost, 1000, 2000) == Collected("n1", None, "running the command: no end after 90 s")
    failed = Answer("n1", 1, json.dumps(sample()).encode(), b"MemoryError\n", None)
    assert understood(failed, 1000, 2000) == Collected("n1", None, "ended with 1: MemoryError")
