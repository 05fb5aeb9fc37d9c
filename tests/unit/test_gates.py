"""The rollout through real ansible-playbook, on nodes that exist only in a scenario: see tests/unit/sim.

Each story is a site and the runs on it, one after another; stories run side by side, since most of a run is the
start of a process. The tests say what must be true of them.
"""

import contextlib
import re
import time
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import yaml
from ansible.errors import AnsibleError

from bedplate.act import controllerlock
from bedplate.act import lock as locks
from bedplate.act.controllerlock import LOCK_FILE
from bedplate.act.rollout import Order, Session
from bedplate.decide.fold import World
from bedplate.doors import plan as plan_door
from bedplate.ledger.store import Ledger
from bedplate.model.faults import BadInput, Busy, Refused
from bedplate.sources import checkout
from bedplate.sources.site import Site, open_site
from unit.simulation import SIM, STEPS, Ran, Simulation
from unit.site_sample import replace_in

pytestmark = pytest.mark.slow

ALL = {f"n{i}" for i in range(1, 9)}
# The plan of 8 fresh nodes: n1 | n7 n8 | n2 n3 n5 n4 | n6, failure budget 1


@dataclass
class Story:
    """Runs by name, and what the ledger and the site were after each."""

    sim: Simulation
    ran: dict[str, Ran] = field(default_factory=dict)
    worlds: dict[str, World] = field(default_factory=dict)
    heads: dict[str, tuple[int, str]] = field(default_factory=dict)
    told: dict[str, Any] = field(default_factory=dict)

    def run(self, name: str, *words: str, env: dict[str, str] | None = None, **extra: str) -> Ran:
        return self.note(name, self.sim.run(*words, env=env, **extra))

    def note(self, name: str, ran: Ran) -> Ran:
        self.ran[name], self.worlds[name], self.heads[name] = ran, self.sim.world(), self.sim.head()
        return ran

    def statuses(self, name: str) -> dict[str, str]:
        """Node -> status after a run; those that run A are left out."""
        identity = self.sim.lock.identity
        return {n: str(s.status) for n, s in self.worlds[name].nodes.items() if not s.at_target(identity)}

    def last(self, name: str) -> Any:
        return list(self.worlds[name].rollouts.values())[-1]


def mending(root: Path) -> Story:
    """A bad canary, then a node that fails within the budget, then all good, then nothing to do, then a dry run."""
    story = Story(Simulation(root))
    story.sim.scenario(n1={"preflight": "fail"})
    story.run("bad canary")
    story.sim.scenario(n5={"preflight": "unreachable"})
    story.run("within budget")
    story.sim.scenario()
    story.run("mended")
    story.run("again")
    story.sim.scenario(n3={"preflight": "fail"})
    story.run("dry", "--check", recheck="true")
    return story


def over_budget(root: Path) -> Story:
    """Three bad nodes in a batch of four; then the retry fails before the first disruptive step; then --limit."""
    story = Story(Simulation(root))
    story.sim.scenario(n2={"verify": "FAIL"}, n3={"install": "fail"}, n5={"stage": "fail"})
    story.run("over budget")
    story.sim.scenario(n2={"preflight": "fail"}, n3={"preflight": "unreachable"})
    story.run("held")
    story.run("approved", "--limit", "n6", failure_budget="3", approved_by="Maria", reason="n2 n3 n5 are for repair")
    return story


def killed(root: Path) -> Story:
    """kill -9 in the middle of the third batch, while two nodes are at it; another run meanwhile; then again."""
    story, release = Story(Simulation(root)), root / "release"
    sim = story.sim
    sim.scenario(n3={"install": {"until": str(release)}}, n5={"install": {"until": str(release)}})
    at_it = {("begin", "n3", "install"), ("begin", "n5", "install"), ("end", "n2", "install"), ("end", "n4", "install")}
    process = sim.start()
    try:
        wait(lambda: at_it <= set(sim.saw()), process)
        story.told["pid"] = process.pid
        story.run("second")
        story.run("dry meanwhile", "--check")
        story.run("listed meanwhile", "--list-tasks")
        process.kill()
        process.communicate()
        before = sim.saw()
        story.told["orphans"] = controllerlock.holder(sim.root / LOCK_FILE)
    finally:
        process.kill()
        release.touch()
    wait(lambda: controllerlock.holder(sim.root / LOCK_FILE) is None, None)
    story.note("killed", Ran(process.returncode, "", before))
    sim.scenario()
    story.run("same again")
    return story


def unrecorded(root: Path) -> Story:
    """A run whose callback is missing, then one that loses its ledger in the middle."""
    story = Story(Simulation(root))
    story.run("no callback", env={"ANSIBLE_CALLBACK_PLUGINS": str(root), "ANSIBLE_STRATEGY": "free"})
    trigger = "CREATE TRIGGER full BEFORE INSERT ON event BEGIN SELECT RAISE(ABORT, 'disk full'); END"
    story.sim.scenario(n1={"preflight": {"sql": trigger}})
    story.run("ledger lost")
    return story


def wait(until: Callable[[], bool], process: Any) -> None:
    deadline = time.monotonic() + 900
    while not until():
        assert process is None or process.poll() is None, process.communicate()[0]
        assert time.monotonic() < deadline
        time.sleep(0.02)


@pytest.fixture(scope="module")
def stories(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Mapping[str, "Future[Story]"]]:
    with ThreadPoolExecutor(max_workers=3) as pool:
        yield {
            tell.__name__: pool.submit(tell, tmp_path_factory.mktemp(tell.__name__))
            for tell in (mending, killed, over_budget, unrecorded)
        }


@pytest.fixture
def mended(stories: Mapping[str, "Future[Story]"]) -> Story:
    return stories["mending"].result()


@pytest.fixture
def spent(stories: Mapping[str, "Future[Story]"]) -> Story:
    return stories["over_budget"].result()


@pytest.fixture
def cut(stories: Mapping[str, "Future[Story]"]) -> Story:
    return stories["killed"].result()


@pytest.fixture
def lost(stories: Mapping[str, "Future[Story]"]) -> Story:
    return stories["unrecorded"].result()


# --- a mending fleet ------------------------------------------------------------------------------


def test_a_failed_canary_stops_the_rollout_with_one_node_touched(mended: Story) -> None:
    ran = mended.ran["bad canary"]
    assert ran.code == 2, ran.out
    assert ran.touched == {"n1"}
    assert ran.steps("n1") == ["preflight"]
    assert mended.statuses("bad canary") == {"n1": "failed"}
    record = mended.last("bad canary")
    assert (record.outcome, record.reason) == ("stopped", "canary n1 is bad: n1 failed at 'Preflight'")
    assert "  STOPPED: canary n1 is bad" in ran.out
    state = mended.worlds["bad canary"].state("n1")
    assert state.why == "non-zero return code: scripted failure, not UTF-8: ?", "what is no UTF-8 is recorded as well"


def test_a_failure_within_the_budget_is_named_and_the_others_go_on(mended: Story) -> None:
    ran = mended.ran["within budget"]
    assert ran.code == 4, ran.out
    assert mended.statuses("within budget") == {"n5": "unreachable"}
    assert ran.steps("n5") == ["preflight"]
    assert all(ran.steps(node) == STEPS for node in ALL - {"n5"})
    assert "  unreachable: 1: n5\n" in ran.out
    assert "  runs A: 7: n[1-4,6-8]\n" in ran.out
    assert mended.last("within budget").outcome == "ended"


def test_what_failed_before_is_named_and_done_first(mended: Story) -> None:
    ran = mended.ran["within budget"]
    assert "  failed before, done again: n1\n" in ran.out
    assert "  batch 1/4 recovery: n[1,7]\n" in ran.out
    assert [node for word, node, step in ran.saw if (word, step) == ("begin", "drain")][:2] in (
        ["n1", "n7"],
        ["n7", "n1"],
    )


def test_the_same_command_mends_what_is_left_and_touches_nothing_else(mended: Story) -> None:
    ran = mended.ran["mended"]
    assert ran.code == 0, ran.out
    assert ran.touched == {"n5"}
    assert mended.statuses("mended") == {}
    assert {name for name, state in mended.worlds["mended"].nodes.items()} == ALL


def test_a_second_run_changes_nothing_and_says_so_in_one_line_per_group(mended: Story) -> None:
    ran = mended.ran["again"]
    assert ran.code == 0, ran.out
    assert ran.saw == []
    lines = [line for line in ran.out.splitlines() if "nothing to change on" in line]
    for group, nodes, count in (("reference", "n1", 1), ("training", "n[1-6]", 6), ("spare", "n[7-8]", 2)):
        said = rf"  {group}: {count} of {count} nodes run A already, verified since [-0-9T:]+Z: nothing to change on "
        assert len([line for line in lines if re.fullmatch(said + re.escape(nodes), line)]) >= 1, ran.out
    before, after = mended.worlds["mended"], mended.worlds["again"]
    assert after.nodes == before.nodes
    assert (mended.last("again").number, mended.last("again").outcome) == (4, "ended")


def test_a_dry_run_says_what_it_would_do_and_leaves_no_trace(mended: Story) -> None:
    ran = mended.ran["dry"]
    assert ran.code == 0, ran.out
    assert "dry: nothing is changed or recorded" in ran.out
    assert "  batch 1/4 canary: n1\n" in ran.out
    assert "ROLLOUT 5 to A ended (dry)" in ran.out
    assert ran.saw == []
    assert mended.heads["dry"] == mended.heads["again"]


def test_every_step_of_every_node_is_recorded(mended: Story) -> None:
    with Ledger.read(mended.sim.site.ledger_url) as ledger:
        events = list(ledger.events(subject="rollout:2"))
        assert ledger.verify() == []
    steps = [e for e in events if e.kind == "step.ended"]
    for node in ALL - {"n5"}:
        of = [(e.body["step"], e.body["result"]) for e in steps if f"node:{node}" in e.subjects]
        assert of == [
            ("Preflight", "changed"), ("Drain", "changed"), ("Stage", "changed"), ("Install", "changed"),
            ("Verify", "ok"), ("Answer", "skipped"), ("Mark the node done", "ok"),
        ]  # fmt: skip
        kinds = [e.kind for e in events if f"node:{node}" in e.subjects and not e.kind.startswith("step")]
        assert kinds == ["batch.admitted", "node.verified", "node.done"]
    assert all(e.environment == mended.sim.lock.identity and "environment:A" in e.subjects for e in events)
    assert [e.kind for e in events][:: len(events) - 1] == ["rollout.started", "rollout.ended"]
    assert events[-1].body == {"nodes": {"verified": 7, "unreachable": 1}}
    done = next(e for e in events if e.kind == "node.done")
    assert re.fullmatch(r"sha256:[0-9a-f]{64}", done.body["manifest_sha256"])


# --- over the budget ------------------------------------------------------------------------------


def test_a_rollout_over_its_budget_stops_at_the_next_batch(spent: Story) -> None:
    ran = spent.ran["over budget"]
    assert ran.code == 2, ran.out
    assert "n6" not in ran.touched
    assert spent.statuses("over budget") == {"n2": "failed", "n3": "failed", "n5": "rescued"}
    assert len(spent.statuses("over budget")) <= 1 + 4
    reason = "3 bad nodes, failure budget 1: n2 failed at 'Verify', n3 failed at 'Install', n5 rescued at "
    assert f"ROLLOUT STOPPED at batch 4: {reason}" in ran.out
    assert spent.last("over budget").reason.startswith(reason)
    assert spent.last("over budget").outcome == "stopped"


def test_a_node_that_was_rescued_is_bad_though_ansible_calls_it_good(spent: Story) -> None:
    ran = spent.ran["over budget"]
    assert ran.steps("n5") == ["preflight", "drain", "stage", "undo", "install", "verify"]
    assert re.search(r"^n5 +: ok=\d+ .* failed=0 .* rescued=1", ran.out, re.MULTILINE)
    assert spent.worlds["over budget"].state("n5").runs is None


def test_a_verification_that_fails_is_recorded_with_its_rows(spent: Story) -> None:
    with Ledger.read(spent.sim.site.ledger_url) as ledger:
        [event] = [e for e in ledger.events(subject="node:n2") if e.kind == "node.verified"]
    assert (event.body["verdict"], event.body["why"]) == ("FAIL", "driver sim: as the scenario says")
    assert spent.worlds["over budget"].state("n2").why == "FAIL: driver sim: as the scenario says"


def test_a_batch_that_is_over_the_budget_before_its_first_disruptive_step_is_held(spent: Story) -> None:
    ran = spent.ran["held"]
    assert ran.code in (2, 4), ran.out
    assert "  batch 1/1 recovery: n[2-3,5-6]\n" in ran.out
    assert {step for _, _, step in ran.saw} == {"preflight"}
    assert spent.statuses("held") == {"n2": "failed", "n3": "unreachable", "n5": "rescued", "n6": "never seen"}
    assert spent.worlds["held"].state("n6") == spent.worlds["over budget"].state("n6")
    assert spent.worlds["held"].state("n5") == spent.worlds["over budget"].state("n5")


def test_a_persons_word_for_a_larger_budget_is_recorded_and_the_limit_holds(spent: Story) -> None:
    ran = spent.ran["approved"]
    assert ran.code == 0, ran.out
    assert ran.touched == {"n6"}
    body = spent.last("approved").body
    assert (body["approved_by"], body["reason"]) == ("Maria", "n2 n3 n5 are for repair")
    assert body["policy"]["failure_budget"] == 3


# --- killed ---------------------------------------------------------------------------------------


def test_a_second_rollout_while_one_runs_is_refused_with_who_and_since(cut: Story) -> None:
    ran = cut.ran["second"]
    assert ran.code == 4, ran.out
    assert "another rollout is running: rollout 1 to A by " in ran.out
    assert re.search(rf"since 20[-0-9T:+]+ \(process {cut.told['pid']}\)", ran.out)
    assert ran.saw == []


@pytest.mark.parametrize("how", ["dry meanwhile", "listed meanwhile"])
def test_a_dry_run_while_a_rollout_runs_is_refused_as_a_second_one_is(cut: Story, how: str) -> None:
    """It would call the living one dead, its nodes in doubt, and count them as bad."""
    ran = cut.ran[how]
    assert ran.code == cut.ran["second"].code, ran.out
    assert re.search(rf"another rollout is running: .*since 20[-0-9T:+]+ \(process {cut.told['pid']}\)", ran.out)
    assert "abandoned" not in ran.out
    assert (ran.saw, cut.heads[how]) == ([], cut.heads["second"])


def test_a_dry_run_is_refused_while_another_controller_rolls_out(
    site: Simulation, dry: Callable[[Site, Order], Session], monkeypatch: pytest.MonkeyPatch
) -> None:
    said = "another rollout is running: rollout 7 to B, on another controller of this ledger"
    with monkeypatch.context() as elsewhere:
        elsewhere.setattr(controllerlock, "elsewhere", lambda _: controllerlock.Holder(said))
        with pytest.raises(Busy, match=said):
            dry(site.site, Order("A"))
    assert dry(site.site, Order("A")).plan.nodes


def test_a_killed_controller_whose_workers_still_act_is_named_with_them(cut: Story) -> None:
    said = cut.told["orphans"]
    assert "rollout 1 to A by " in said
    assert f"its controller (process {cut.told['pid']}) is dead, but its workers [" in said


def test_a_kill_leaves_the_batch_in_flight_in_doubt_and_finished_nodes_finished(cut: Story) -> None:
    assert cut.ran["killed"].code == -9
    assert cut.statuses("killed") == dict.fromkeys(["n2", "n3", "n4", "n5"], "in doubt")
    assert cut.ran["killed"].touched == ALL - {"n6"}, "what nodes saw and what the ledger admitted"
    assert cut.last("killed").ended is None


def test_the_same_command_after_a_kill_finishes_without_touching_what_was_finished(cut: Story) -> None:
    ran = cut.ran["same again"]
    assert ran.code == 0, ran.out
    assert "  rollout 1 was not ended by its controller: abandoned\n" in ran.out
    assert "  in doubt, done first: n[2-5]\n" in ran.out
    assert "  batch 1/1 recovery: n[2-6]\n" in ran.out
    assert ran.touched == {"n2", "n3", "n4", "n5", "n6"}
    assert cut.statuses("same again") == {}
    assert set(cut.worlds["same again"].nodes) == ALL
    finished = [(word, node, step) for word, node, step in cut.sim.saw() if node in ("n1", "n7", "n8")]
    assert sorted(finished) == sorted((w, n, s) for n in ("n1", "n7", "n8") for s in STEPS for w in ("begin", "end"))
    assert cut.worlds["same again"].rollouts[1].outcome == "abandoned"
    assert cut.sim.damage() == []


# --- not recorded ---------------------------------------------------------------------------------


def test_without_the_callback_no_node_is_touched_whatever_the_strategy(lost: Story) -> None:
    ran = lost.ran["no callback"]
    assert ran.code == 2, ran.out
    assert "ROLLOUT STOPPED: the ledger did not judge this batch" in ran.out
    assert ran.saw == []


def test_a_ledger_that_cannot_be_written_ends_the_run(lost: Story) -> None:
    ran = lost.ran["ledger lost"]
    assert ran.code == 1, ran.out
    assert "ROLLOUT ABORTED: the ledger cannot be written" in ran.out
    assert ran.touched == {"n1"}
    assert ran.steps("n1") == ["preflight"]
    assert lost.statuses("ledger lost") == {"n1": "in doubt"}


# --- what is refused before anything happens ------------------------------------------------------


@pytest.fixture
def site(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Simulation:
    monkeypatch.setattr(locks, "verify_online", lambda *_: [])
    return Simulation(tmp_path)


@pytest.fixture
def dry() -> Iterator[Callable[[Site, Order], Session]]:
    """Begins rollouts that change nothing, and closes their ledgers: Python 3.13 warns of those left open."""
    with contextlib.ExitStack() as undo:

        def begin(of: Site, order: Order) -> Session:
            session = Session(of, order, dry=True)
            undo.callback(session.ledger.close)
            return session

        yield begin


@pytest.mark.parametrize(
    ("flags", "said"),
    [
        ({"tags": ["packages"]}, "--tags"), ({"tags": ["all", "never"]}, "--tags"),
        ({"skip_tags": ["verify"]}, "--skip-tags"), ({"start_at_task": "Converge"}, "--start-at-task"),
        ({"step": True}, "--step"),
    ],
)  # fmt: skip
def test_options_that_could_skip_a_gate_are_refused(
    flags: dict[str, Any], said: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(plan_door, "context", SimpleNamespace(CLIARGS={"tags": ("all",), **flags}))
    with pytest.raises(AnsibleError, match=f"cannot be run with {said}: it could skip a gate"):
        plan_door._open("A", {}, {})


def test_a_rollout_without_a_target_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(plan_door, "context", SimpleNamespace(CLIARGS={"tags": ("all",)}))
    with pytest.raises(AnsibleError, match="-e target=ENVIRONMENT"):
        plan_door._open("", {}, {})


@pytest.mark.parametrize(
    ("order", "error", "said"),
    [
        (Order("A", limit=["n1", "n9", "ctl"]), BadInput, r"ctl,n9: no node that environment A is for \(kinds gpu\)"),
        (Order("A", failure_budget=2), Refused, "2 is above the policy's 1: needs --approved-by NAME --reason TEXT"),
        (Order("A", failure_budget=2, approved_by="Maria"), Refused, "needs --approved-by"),
        (Order("A", failure_budget=2, reason="hurry"), Refused, "needs --approved-by"),
        (Order("A", failure_budget=-1), BadInput, "failure budget of -1"),
        (Order("A", reason="for {{ n2 }}"), BadInput, "Jinja delimiter: Ansible would evaluate it"),
        (Order("B"), BadInput, 'no environment "B"'),
    ],
)
def test_an_order_that_cannot_be_carried_out_is_refused(
    site: Simulation, order: Order, error: type[Exception], said: str
) -> None:
    with pytest.raises(error, match=said):
        Session(site.site, order, dry=False)
    assert site.world().rollouts == {}
    assert controllerlock.holder(site.root / LOCK_FILE) is None, "a refused rollout holds the lock"


def test_a_smaller_budget_needs_nobodys_word(site: Simulation, dry: Callable[[Site, Order], Session]) -> None:
    session = dry(site.site, Order("A", failure_budget=0, limit=["n2"]))
    assert session.readiness.policy.failure_budget == 0
    assert session.plan.nodes == ["n2"]


def test_a_site_that_is_no_longer_what_was_locked_is_refused(
    site: Simulation, dry: Callable[[Site, Order], Session]
) -> None:
    def refusal(**given: Any) -> str:
        with pytest.raises((Refused, BadInput)) as caught:
            Session(open_site(site.root), Order("A"), dry=False)
        return str(caught.value)

    lock, environment, fleet = site.site.lock_path("A"), site.site.environment_path("A"), site.root / "fleet.yml"
    text = lock.read_text()
    lock.write_text(text.replace('"url": "http://archive.lab:8080/"', '"url": "http://other/"'))
    assert "the ledger does not know lock A" in refusal()
    assert "the lock file was edited (run: bedplate lock A)" in refusal()
    lock.unlink()
    assert refusal() == "environment A is not locked (run: bedplate lock A)"
    lock.write_text(text)
    replace_in(environment, "nccl_debug: WARN", "nccl_debug: INFO")
    assert "is not what A was locked from" in refusal()
    replace_in(environment, "nccl_debug: INFO", "nccl_debug: WARN")
    replace_in(fleet, "site: sample", "site: sample\nexample: true")
    assert "example: true" in refusal()
    replace_in(fleet, "site: sample\nexample: true", "site: sample")
    assert dry(open_site(site.root), Order("A")).plan.nodes


def test_templates_that_are_not_those_of_the_lock_are_refused(
    site: Simulation, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(checkout, "roles", lambda: {"roles/base/files.yml": b"[]"})
    with pytest.raises(Refused, match="the templates of this checkout are not those of lock A"):
        Session(site.site, Order("A"), dry=False)


def test_what_archive_or_registry_lack_is_refused(site: Simulation, monkeypatch: pytest.MonkeyPatch) -> None:
    fault = BadInput("numactl 1 is not in the archive")
    monkeypatch.setattr(locks, "verify_online", lambda *_: (_ for _ in ()).throw(fault))
    with pytest.raises(BadInput, match="not in the archive"):
        Session(site.site, Order("A"), dry=False)


def test_a_node_that_left_the_fleet_holds_up_nobody(site: Simulation, dry: Callable[[Site, Order], Session]) -> None:
    session = dry(site.site, Order("A"))
    for gone in ("n98", "n99"):
        session.failed(gone, "Install", "it was sold", unreachable=True)
    session.next_batch()
    session.judge()
    assert session.verdict
    assert session.verdict.go
    session.failed("n8", "Install", "no space", unreachable=False)
    session.failed("n7", "Install", "no space", unreachable=False)
    session.failed("n1", "Install", "no space", unreachable=False)
    session.next_batch()
    session.judge()
    assert session.verdict.reason.startswith("canary n1 is bad")


def test_a_rollout_that_was_never_begun_or_cut_short_by_ansible_was_stopped(
    site: Simulation, dry: Callable[[Site, Order], Session]
) -> None:
    session = dry(site.site, Order("A"))
    assert session.end().rollouts[1].reason == "no batch began"
    session = dry(site.site, Order("A", failure_budget=9, approved_by="Maria", reason="try"))
    for index, batch in enumerate(session.plan.batches[:2]):
        session.next_batch()
        session.judge()
        for node in batch.nodes:
            if index:
                session.failed(node, "Install", "no space", unreachable=False)
            else:
                session.verified(node, {"verdict": "PASS", "facts": {}, "why": ""})
                session.done(node, "sha256:" + "0" * 64)
    record = session.end().rollouts[1]
    assert (record.outcome, record.reason) == ("stopped", "every node of batch 2 is bad")


def test_two_rollouts_in_one_process_are_refused(site: Simulation) -> None:
    session = Session(site.site, Order("A"), dry=False)
    with pytest.raises(Busy, match=r"rollout 1 to A by .*, since 20"):
        Session(site.site, Order("A"), dry=False)
    assert session.controller_lock is not None
    controllerlock.release(session.controller_lock)
    session.ledger.close()


# --- the simulation is the product's play ---------------------------------------------------------


def test_the_simulated_play_is_the_play_of_the_product() -> None:
    [real] = yaml.safe_load((checkout.root() / "playbooks" / "rollout.yml").read_text())
    [sim] = yaml.safe_load((SIM / "rollout.yml").read_text())
    ours = {"bedplate_gate", "bedplate_done"}

    def gates(tasks: list[dict[str, Any]]) -> list[tuple[str, set[str]]]:
        return [(task["name"], set(task) & ours) for task in tasks if set(task) & ours]

    assert gates(real.pop("tasks")) == gates(sim.pop("tasks"))
    assert sim.pop("connection") == "sim"
    assert sim == real
