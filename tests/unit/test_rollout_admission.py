"""What stands before a batch besides the budget: acceptance, windows, approvals, soak, deadlines, the plan shown."""

import datetime
import fcntl
import json
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from bedplate.act import controllerlock, rollout
from bedplate.act import lock as locks
from bedplate.act.rollout import Order, Session, plan_sha256
from bedplate.cli.rollout import plan
from bedplate.decide.acceptance import QUESTIONS, RETURNING
from bedplate.decide.acceptancegate import acceptance_gate, node_engine, node_questions
from bedplate.decide.admission import why_not_now
from bedplate.decide.fold import NodeState, Status
from bedplate.decide.lockdoc import LockDocument
from bedplate.decide.plan import Batch, make_plan
from bedplate.decide.render import manifest_sha256
from bedplate.decide.statedigest import Digested, digested, parse_digest
from bedplate.ledger.store import Ledger
from bedplate.model.event import Draft, Event
from bedplate.model.faults import BadInput, Refused
from bedplate.model.policy import Policy
from bedplate.model.window import parse_window
from bedplate.sources import checkout
from bedplate.sources.site import Site, open_site
from unit.fleet_sample import nodes
from unit.lock_sample import document, set_at
from unit.simulation import Simulation
from unit.site_sample import replace_in
from unit.story import A, Story

POLICY = "canary: 1, small: 2, batch: 4, failure_budget: 1"
GOOD = {"verdict": "PASS", "facts": {}, "why": ""}
LOCK = LockDocument({"environment": "A", "layers": {"scheduler": {"packages": {}}}}, A)


def accepted(engine: str = "slurm", *, kind: str = "node.accepted", bad: str = "", stand_in: bool = False,
             environment: str = A, node: str = "n1") -> Event:  # fmt: skip
    body = {
        "engine": engine, "verdict": "failed" if kind == "node.refused" else "passed", "why": bad and f"{bad}: hot",
        "stand_in": stand_in, "questions": {q: {"verdict": "failed" if q == bad else "passed"} for q in QUESTIONS},
    }  # fmt: skip
    return Story().tell(kind, (f"node:{node}",), environment, body)


# --- acceptance -----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("events", "asked", "reference", "required", "said", "refusal"),
    [
        ([], {"n2"}, {}, False, "no acceptance gate: the fleet names no reference node", ""),
        ([], {"n2"}, {"n1": True}, False, "no acceptance gate: n1 are stand-ins", ""),
        ([], {"n2"}, {"n1": True}, True, "not accepted", "n1: never asked under it"),
        ([], {"n1"}, {"n1": False}, False, "no acceptance needed: only reference nodes are asked for (n1)", ""),
        ([], {"n1", "n2"}, {"n1": False}, False, "not accepted", "n1: never asked under it"),
        ([accepted()], {"n2"}, {"n1": False}, False, "accepted on n1: event 1, 2026-11-02T09:00:01Z", ""),
        ([accepted(environment="sha256:" + "b" * 64)], {"n2"}, {"n1": False}, False, "not accepted", "never asked"),
        ([accepted(node="n2")], {"n2"}, {"n1": False}, False, "not accepted", "n1: never asked under it"),
        ([accepted(), accepted(kind="node.refused", bad="exchange")], {"n2"}, {"n1": False}, False,
         "not accepted", "n1: refused, event 1: exchange: hot"),
        ([accepted(bad="learning")], {"n2"}, {"n1": False}, False, "not accepted", "no passed answer to learning"),
        ([accepted("docker")], {"n2"}, {"n1": False}, False, "not accepted", "started by docker, not as jobs are"),
        ([accepted(stand_in=True)], {"n2"}, {"n1": False}, False, "not accepted", "was answered by stand-ins"),
        ([accepted(stand_in=True)], {"n2"}, {"n1": True}, True, "accepted on n1", ""),
        ([accepted(node="n3")], {"n2"}, {"n1": False, "n3": False}, False, "accepted on n3", ""),
    ],
)  # fmt: skip
def test_an_environment_leaves_the_reference_nodes_when_one_of_them_accepted_it(
    events: list[Event], asked: set[str], reference: dict[str, bool], required: bool, said: str, refusal: str
) -> None:
    gate = acceptance_gate(LOCK, asked=asked, reference=reference, required=required, events=events)
    assert gate.said.startswith(said)
    assert refusal in gate.refusal
    assert bool(refusal) == bool(gate.refusal)
    if refusal:
        assert "bedplate node accept n1 --env A" in gate.refusal
        assert "--override-acceptance REASON --approved-by NAME" in gate.refusal


def test_where_no_scheduler_is_managed_docker_is_the_launch_path() -> None:
    lock = LockDocument({"environment": "A", "layers": {"scheduler": {"unmanaged": "none here"}}}, A)
    gate = acceptance_gate(lock, asked={"n2"}, reference={"n1": False}, required=False, events=[accepted("docker")])
    assert not gate.refusal


IMAGE = LockDocument({"environment": "A", "layers": {"image": {}}, "image": document()["image"]}, A)


BARE = LockDocument({"environment": "A", "layers": {"image": {"unmanaged": "none"}}, "image": None}, A)


@pytest.mark.parametrize(
    ("asked", "reference", "acceptance", "expected"),
    [
        (None, {}, "by-fleet", ()),
        (None, {"n1": True}, "by-fleet", ()),
        (None, {"n1": True}, "required", RETURNING),
        (None, {}, "required", ()),
        (None, {"n1": False, "n2": True}, "by-fleet", RETURNING),
        ((), {"n1": False}, "required", ()),
        (("exchange", "devices"), {}, "by-fleet", ("devices", "exchange")),
        (QUESTIONS, {"n1": True}, "by-fleet", QUESTIONS),
    ],
)
def test_what_a_changed_node_answers_before_it_returns(
    asked: tuple[str, ...] | None, reference: dict[str, bool], acceptance: str, expected: tuple[str, ...]
) -> None:
    policy = Policy(1, 2, 4, 1, acceptance=acceptance, node_questions=asked)
    assert node_questions(policy, IMAGE, reference=reference) == expected
    assert node_questions(policy, BARE, reference=reference) == (), "no image, and nobody to ask"


def test_a_drained_node_starts_its_image_by_enroot_or_else_by_docker() -> None:
    made = document()
    without = LockDocument(set_at(made, "packages/gpu", {}), A)
    assert node_engine(without, "gpu") == "docker"
    package = next(iter(made["packages"]["gpu"].values()))
    assert node_engine(LockDocument(set_at(made, "packages/gpu", {"enroot": package}), A), "gpu") == "enroot"


# --- windows and approvals ------------------------------------------------------------------------


def test_a_batch_begins_in_a_window_and_with_the_word_that_it_waits_for() -> None:
    policy = Policy(1, 2, 4, 1, windows=(parse_window("mon 10:00-12:00"),), approvals=("rest",))
    monday = datetime.datetime(2026, 11, 30, 10, tzinfo=datetime.UTC)
    canary, rest = Batch("canary", ("n1",)), Batch("rest", ("n2",))

    def why(batch: Batch, at: datetime.datetime, *approved: str) -> str:
        return why_not_now(policy, batch, now=at, approved=approved, name="A")

    assert why(canary, monday) == ""
    assert "is in no maintenance window" in why(canary, monday - datetime.timedelta(minutes=1))
    assert "bedplate rollout A --approve rest --approved-by NAME --reason TEXT" in why(rest, monday)
    assert why(rest, monday, "rest") == ""


def test_a_fresh_node_that_goes_with_bad_ones_waits_for_the_word_of_the_batch_that_it_stands_for() -> None:
    """A canary that failed would else take a node with it, run for run, that nobody gave the word for."""
    fleet = nodes(12)
    bad = {node.name: NodeState(status=Status.FAILED) for node in fleet[:5]}
    policy = Policy(1, 2, 1, 1, approvals=("small", "rest"))
    recoveries = [batch for batch in make_plan(fleet, bad, A, policy).batches if batch.name == "recovery"]
    assert [batch.fresh for batch in recoveries] == ["canary", "small", "small", "rest", "rest"]
    now = datetime.datetime(2026, 11, 30, 10, tzinfo=datetime.UTC)

    def why(batch: Batch, *approved: str) -> str:
        return why_not_now(policy, batch, now=now, approved=approved, name="A")

    assert why(recoveries[0]) == ""
    again, new = recoveries[1].nodes
    assert why(recoveries[1]) == (
        f"{new}, which is fresh, goes with {again} in the place of a small batch, and those wait for a person's word"
        " (run: bedplate rollout A --approve small --approved-by NAME --reason TEXT;"
        f" or {again} alone: --nodes '{again}')"
    )
    assert why(recoveries[1], "small") == ""
    assert "--approve rest" in why(recoveries[3], "small")
    [alone] = make_plan(fleet[:1], bad, A, policy).batches
    assert why(alone) == "", "what was bad before needs no other word"


# --- the session ----------------------------------------------------------------------------------


@pytest.fixture
def sim(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Simulation:
    monkeypatch.setattr(locks, "verify_online", lambda *_: [])
    return Simulation(tmp_path)


@pytest.fixture
def opened() -> Iterator[Callable[..., Session]]:
    with ExitStack() as undo, ExitStack() as held:

        def begin(site: Site, dry: bool = False, **given: Any) -> Session:
            held.close()  # the rollout before has ended, and its process with it
            session = Session(site, Order("A", **given), dry=dry)
            undo.callback(session.ledger.close)
            if session.controller_lock is not None:
                held.callback(controllerlock.release, session.controller_lock)
            return session

        yield begin


def with_policy(sim: Simulation, said: str) -> Site:
    replace_in(sim.root / "environments" / "A.yml", POLICY, f"{POLICY}, {said}")
    return open_site(sim.root)


def finish(session: Session) -> None:
    """A batch in which all goes well."""
    session.next_batch()
    session.to_soak()
    session.judge()
    assert session.verdict
    assert session.verdict.go, session.verdict.reason
    for node in session.plan.batches[session.batch].nodes:
        session.verified(node, GOOD)
        session.done(node, "sha256:" + "0" * 64, "sha256:" + "1" * 64)


def test_outside_of_the_windows_a_rollout_stops_before_a_node_is_touched(
    sim: Simulation, opened: Callable[..., Session]
) -> None:
    now = datetime.datetime.now(datetime.UTC)
    day = ("mon", "tue", "wed", "thu", "fri", "sat", "sun")[(now.weekday() + 3) % 7]
    session = opened(with_policy(sim, f"windows: ['{day} 10:00-11:00']"))
    session.next_batch()
    session.judge()
    assert session.verdict
    assert "is in no maintenance window" in session.verdict.reason
    assert session.world().rollouts[1].outcome == "stopped"
    assert session.world().nodes == {}, "nobody was admitted"


def test_batches_wait_for_a_named_persons_word_which_is_recorded_and_lasts(
    sim: Simulation, opened: Callable[..., Session]
) -> None:
    site = with_policy(sim, "approvals: [rest]")
    first = opened(site)
    finish(first)
    finish(first)
    first.next_batch()
    first.judge()
    assert first.verdict
    assert "--approve rest --approved-by NAME" in first.verdict.reason
    first.end()
    with pytest.raises(Refused, match="to approve rest needs --approved-by NAME --reason TEXT"):
        opened(site, approve=("rest",), approved_by="Maria")
    with pytest.raises(BadInput, match="batches of A that wait for a word: rest"):
        opened(site, approve=("small",), approved_by="Maria", reason="seen")
    second = opened(site, approve=("rest",), approved_by="Maria", reason="seen")
    finish(second)
    with Ledger.read(site.ledger_url) as ledger:
        [word] = ledger.events(kinds=["rollout.approved"])
    assert dict(word.body) == {"approved_by": "Maria", "reason": "seen", "batch": "rest"}


def test_a_checkout_that_is_changed_while_a_rollout_runs_begins_no_batch(
    sim: Simulation, opened: Callable[..., Session], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    for name in ("roles/kernel/tasks", "roles/kernel/__pycache__", "playbooks/steps"):
        (tmp_path / name).mkdir(parents=True)
    tasks = tmp_path / "roles/kernel/tasks/main.yml"
    tasks.write_text("[]\n")
    session = opened(sim.site)
    monkeypatch.setenv("BEDPLATE_CHECKOUT", str(tmp_path))
    session.followed_sha256 = checkout.followed_sha256()
    finish(session)
    (tmp_path / "roles/kernel/__pycache__/x.pyc").write_bytes(b"x")
    finish(session)
    tasks.write_text("- name: Another\n")
    session.next_batch()
    session.to_soak()
    session.judge()
    assert session.verdict
    assert not session.verdict.go
    assert session.verdict.reason.startswith(f"playbooks, roles or checks of {tmp_path} were changed")
    assert session.world().rollouts[session.number].outcome == "stopped"


def test_the_batch_before_is_asked_once_more_after_its_soak_and_counts(
    sim: Simulation, opened: Callable[..., Session]
) -> None:
    session = opened(with_policy(sim, "soak_s: 600"))
    session.next_batch()
    session.to_soak()
    assert not session.soak.nodes, "nothing stands before the first batch"
    session.batch = -1
    finish(session)
    session.next_batch()
    session.to_soak()
    assert session.soak.nodes == ("n1",)
    assert 0 < session.soak.wait_s <= 600
    session.soaked({"n1": {"verdict": "FAIL", "why": "a GPU fell off the bus", "facts": {}}})
    session.judge()
    assert session.verdict
    assert session.verdict.reason.startswith("canary n1 is bad")
    assert session.world().state("n1").why == "a GPU fell off the bus"


def test_a_soak_that_was_cut_off_is_made_up_for_before_the_next_run_begins_a_batch(
    sim: Simulation, opened: Callable[..., Session]
) -> None:
    site = with_policy(sim, "soak_s: 600")
    killed = opened(site)
    finish(killed)  # n1, the canary; its controller dies in the soak
    assert killed.controller_lock is not None
    fcntl.flock(killed.controller_lock, fcntl.LOCK_UN)
    again = opened(site)
    again.next_batch()
    again.to_soak()
    assert again.soak.nodes == ("n1",)
    assert 500 < again.soak.wait_s <= 600
    again.soaked({"n1": GOOD | {"verdict": "FAIL", "why": "a GPU fell off the bus"}})
    again.judge()
    again.end()
    assert again.world().state("n1").status is Status.FAILED
    assert again.controller_lock is not None
    fcntl.flock(again.controller_lock, fcntl.LOCK_UN)
    third = opened(site)
    assert third.plan.bad == ("n1",)
    third.next_batch()
    third.to_soak()
    assert third.soak.nodes == (), "it was asked, and that it is bad is known"


def test_a_node_whose_own_steps_take_longer_than_the_deadline_is_late(
    sim: Simulation, opened: Callable[..., Session]
) -> None:
    session = opened(with_policy(sim, "node_deadline_s: 60"))
    session.worked("n1", 59)
    assert session.late == {}
    session.worked("n1", 2)
    session.worked("n2", 3)
    assert session.late == {"n1": "its steps took 61 s, the policy's deadline for a node is 60 s"}


def test_a_plan_that_no_longer_fits_the_fleet_is_refused(sim: Simulation, opened: Callable[..., Session]) -> None:
    shown = opened(sim.site, dry=True)
    digest = plan_sha256(shown.readiness, shown.plan)
    assert opened(sim.site, dry=True, plan_sha256=digest).plan == shown.plan
    with Ledger.open(sim.site.ledger_url) as ledger:
        identity = sim.lock.identity
        ledger.append(
            Draft("rollout.started", ("rollout:1",), {"environment": "A"}, identity),
            Draft("batch.admitted", ("rollout:1", "node:n3"), {"batch": 0, "name": "rest"}, identity),
            Draft("node.failed", ("rollout:1", "node:n3"), {"step": "Install", "why": "no space"}, identity),
        )
    with pytest.raises(Refused, match=r"no longer fits the fleet: .*\(run: bedplate plan A\)"):
        opened(sim.site, plan_sha256=digest)


def test_without_an_acceptance_only_a_named_persons_word_goes_on_and_is_recorded(
    sim: Simulation, opened: Callable[..., Session]
) -> None:
    site = with_policy(sim, "acceptance: required, node_questions: []")
    with pytest.raises(Refused, match="A has no passed acceptance on a reference node"):
        opened(site)
    with pytest.raises(Refused, match="needs --override-acceptance REASON --approved-by NAME"):
        opened(site, override_acceptance="hurry")
    assert opened(site, dry=True, limit=["n1"]).readiness.acceptance.startswith("no acceptance needed")
    session = opened(site, override_acceptance="the reference node is in repair", approved_by="Maria")
    said = "not accepted, on the word of Maria: the reference node is in repair"
    assert session.readiness.acceptance == said
    assert session.world().rollouts[1].body["acceptance"] == said
    assert session.world().rollouts[1].body["override_acceptance"] == "the reference node is in repair"


def test_a_kind_of_node_without_a_profile_is_refused_before_a_node_is_touched(
    sim: Simulation, opened: Callable[..., Session]
) -> None:
    site = with_policy(sim, "node_questions: [devices]")
    with pytest.raises(BadInput, match=r"acceptance/lab-gpu8.yml: no such file, by which .*node_questions: \[\]"):
        opened(site)
    with pytest.raises(Refused, match="needs --override-acceptance REASON --approved-by NAME"):
        opened(site, override_acceptance="hurry")
    session = opened(site, override_acceptance="a rollback at night", approved_by="Maria")
    assert session.readiness.questions == ()
    assert session.world().rollouts[1].body["override_acceptance"] == "a rollback at night"
    session.end()
    (site.root / "acceptance").mkdir()
    (site.root / "acceptance/lab-gpu8.yml").write_text("name: x\n")
    assert opened(site, dry=True).readiness.questions == ("devices",)


def test_a_plan_says_what_each_changed_node_answers(sim: Simulation) -> None:
    site = with_policy(sim, "node_questions: [devices, exchange]")
    (site.root / "acceptance").mkdir()
    (site.root / "acceptance/lab-gpu8.yml").write_text("name: x\n")
    said = CliRunner().invoke(plan, ["A"], obj=site.root, catch_exceptions=False).stdout
    assert "each changed node answers before it returns: devices, exchange\n" in said
    told = json.loads(CliRunner().invoke(plan, ["A", "--json"], obj=site.root, catch_exceptions=False).stdout)
    assert told["node_questions"] == ["devices", "exchange"]


# --- nodes that are left at once ------------------------------------------------------------------


def test_a_node_is_left_at_once_only_as_it_was_proven(sim: Simulation, opened: Callable[..., Session]) -> None:
    session = opened(sim.site)
    files = {name: manifest_sha256(rollout.rendered(sim.site, "A", name)) for name in session.plan.nodes}
    for name, manifest in files.items():
        session.ledger.append(session._draft("batch.admitted", [name], {"batch": 0, "name": "rest"}))
        session.verified(name, GOOD)
        # n2: rendered otherwise since; n3: no digest was had
        session.done(name, "sha256:" + "0" * 64 if name == "n2" else manifest, "" if name == "n3" else "sha256:1")
    session.end()
    again = opened(sim.site, dry=True, recheck=True)
    assert sorted(again.proven) == ["n1", "n4", "n5", "n6", "n7", "n8"]
    again.next_batch()
    again.judge()
    again.left({"n1": {"verified": GOOD, "manifest_sha256": files["n1"], "state_sha256": "sha256:1"}})
    assert again.world().state("n1").at_target(sim.lock.identity)


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("bedplate-state 9 " + "a" * 64 + "\n", Digested("sha256:" + "a" * 64)),
        ("a banner\nbedplate-state 9 " + "a" * 64 + "\n", Digested("sha256:" + "a" * 64)),
        ("bedplate-state 8 " + "a" * 64 + "\n", "its state cannot be digested: 8 of 9 parts were answered"),
        ("bedplate-state 9 " + "a" * 63, "its state cannot be digested: the answer is cut"),
        ("", "its state cannot be digested: the answer is cut"),
    ],
)
def test_an_answer_that_is_not_whole_is_no_digest(text: str, found: Digested | str) -> None:
    assert parse_digest(text) == found


def test_the_program_of_a_node_names_its_files_units_and_modules_as_one_word_each() -> None:
    said = digested(["/etc/a b", "/etc/$(x)"], units=["a.service"], modules=["nvidia-uvm"])
    for word in ("'/etc/a b'", "'/etc/$(x)'", "for u in a.service;", "for m in nvidia_uvm;"):
        assert word in said
