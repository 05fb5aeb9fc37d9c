"""The rollout of this process: opened before Ansible forks, written by its callback, read by its gates.

Invariants
- Everything that can refuse does so here, before any node is contacted: example site, unlocked or changed
  environment, other templates, packages or images that are gone, a rollout that already runs.
- The main process alone writes the ledger; workers inherit plan and verdict with the memory of their fork.
- A dry rollout (--check, the listing options) works on a copy of the ledger in memory and takes no lock; where another
  rollout has it, the copy would call the living one dead, and the dry one is refused as well.
- What happened to a node is written before the next task begins; a failure at once.
"""

import contextlib
import datetime
import os
import sys
import time
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field, replace
from functools import cache
from typing import Any
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

from bedplate.act import controllerlock, rules
from bedplate.act import lock as locks
from bedplate.act.acceptance import keep_logs, profile_path
from bedplate.decide.acceptance import KINDS
from bedplate.decide.acceptancegate import REFERENCE, REQUIRED, acceptance_gate, node_questions
from bedplate.decide.admission import why_not_now
from bedplate.decide.failednodes import Step, next_steps
from bedplate.decide.fold import BAD, ROLLOUT, NodeState, Status, World, fold, mark_of
from bedplate.decide.judge import Verdict, judge
from bedplate.decide.lockdoc import LockDocument
from bedplate.decide.plan import Plan, make_plan
from bedplate.decide.render import RenderedFile, Rendering, manifest_sha256, refuse_other_templates
from bedplate.decide.roles import Role, applicable, declared
from bedplate.decide.rule import Finding
from bedplate.decide.statedigest import Digested
from bedplate.decide.wayback import fields_of
from bedplate.ledger import projection
from bedplate.ledger.store import Ledger
from bedplate.model.canonical import identity
from bedplate.model.environment import Environment, RuleException
from bedplate.model.event import Draft
from bedplate.model.faults import BadInput, Busy, Fault, Refused
from bedplate.model.fleet import Node
from bedplate.model.nodes import fold as fold_names
from bedplate.model.policy import Policy
from bedplate.model.wording import JINJA
from bedplate.sources import checkout
from bedplate.sources.site import Site, shown

HEALTH_ROLE = "health_agent"
SLURM_ROLE = "slurm_node"
SPARES = "spare"  # the group
WHY_LIMIT = 2000  # characters of an error message that are kept with a failed step


@dataclass(frozen=True)
class Order:
    """What a person asked for: the environment, which nodes, and on whose word."""

    environment: str
    limit: Collection[str] | None = None  # node names; None: all of the environment's kinds
    recheck: bool = False
    reinstall: bool = False  # every node's boot disks are wiped on the way
    failure_budget: int | None = None  # instead of the policy's; needs a person's word
    approved_by: str | None = None
    reason: str | None = None
    accept: tuple[str, ...] = ()  # ids of rules that may be broken; needs a person's word
    override_acceptance: str | None = None  # why it goes without a passed acceptance; needs a name
    approve: tuple[str, ...] = ()  # batches that wait for a person's word, and get it
    plan_sha256: str | None = None  # of the plan that was shown: another one is refused
    command: tuple[str, ...] = field(default_factory=lambda: tuple(sys.argv))


@dataclass(frozen=True)
class Readiness:
    """Everything a rollout needs, checked: what is known before anything is done."""

    site: Site
    lock: LockDocument
    nodes: tuple[Node, ...]
    policy: Policy
    sources: Mapping[str, bytes]
    findings: tuple[Finding, ...] = ()
    """What the cross-layer rules said and did not refuse: exceptions that hold, what nobody knows, verdicts."""
    acceptance: str = ""
    """What the acceptance gate says, in one line."""
    questions: tuple[str, ...] = ()
    """What each changed node answers before it returns."""
    health: tuple[str, ...] = ()
    """The kinds of nodes that are asked how they are, before they return and after the soak."""

    def gates(self) -> list[str]:
        """What stands between an environment and the work of nodes, a line each."""
        lines = [self.acceptance]
        if self.health:
            lines.append(f"each changed node is asked how it is before it returns: kind {', '.join(self.health)}")
        else:
            lines.append("no node is asked how it is: the environment has no value health_interval_s")
        if self.questions:
            lines.append(f"each changed node answers before it returns: {', '.join(self.questions)}")
        return lines


def ready(site: Site, order: Order, ledger: Ledger, *, online: bool = True) -> Readiness:
    """Check that an order can be carried out, with every reason why not at once.

    Raises:
        Refused: the site is an example, the lock is not what the ledger knows, templates differ, or a
            person's word is missing; a cross-layer rule is broken; no reference node accepted the environment.
        BadInput: files are wrong; unknown nodes; what archive and registry do not have.
    """
    site.refuse_example(f"roll out {order.environment}")
    environment = site.environment(order.environment)
    if not site.lock_path(order.environment).exists():
        raise Refused(f"environment {order.environment} is not locked (run: bedplate lock {order.environment})")
    lock = site.lock(order.environment)
    recorded = {str(e.environment): e for e in ledger.events(kinds=["lock.resolved"])}
    known = [identity for identity, e in recorded.items() if e.body["environment"] == lock.name]
    if lock.identity not in known:
        raise Refused(
            f"the ledger does not know lock {lock.name} {lock.identity[:19]}"
            + (f", only {', '.join(i[:19] for i in known)}: the lock file was edited" if known else "")
            + f" (run: bedplate lock {lock.name})"
        )
    locks.refuse_stale(site, environment, lock)
    sources = checkout.roles()
    refuse_other_templates(lock, sources)
    nodes = _asked_for(site, environment, order)
    policy = _policy(environment, order)
    world = projection.world(ledger)
    running = {state.runs for state in world.nodes.values() if state.runs in recorded}
    held = {str(identity): locks.of_event(recorded[str(identity)]) for identity in running}
    findings = rules.before_rollout(
        site, environment, lock, nodes=nodes, world=world, held=held, accepted=_accepted(order)
    )
    rules.refuse(f"roll out {lock.name}", findings)
    acceptance = _acceptance(site, lock, order, [node.name for node in nodes], ledger)
    questions = _questions(site, lock, policy, nodes, order)
    if online:
        faults = locks.verify_online(site, order.environment)
        if faults:
            raise BadInput(faults)
    asked = tuple(kind for kind in sorted({node.kind for node in nodes}) if asks_health(site, lock.name, kind))
    return Readiness(site, lock, tuple(nodes), policy, sources, tuple(findings), acceptance, questions, asked)


UNNAMED = "to go without an acceptance needs --override-acceptance REASON --approved-by NAME"


def _acceptance(site: Site, lock: LockDocument, order: Order, asked: Collection[str], ledger: Ledger) -> str:
    """What the acceptance gate says of this rollout, in one line.

    Raises:
        Refused: no reference node accepted the environment, and nobody gave the word to go without.
    """
    environment = site.environment(order.environment)
    gate = acceptance_gate(
        lock, asked=asked, reference=_reference(site, lock),
        required=environment.policy.acceptance == REQUIRED, events=ledger.events(kinds=KINDS),
    )  # fmt: skip
    if not gate.refusal:
        return gate.said
    if not order.override_acceptance:
        raise Refused(gate.refusal)
    if not order.approved_by:
        raise Refused(UNNAMED)
    return f"{gate.said}, on the word of {order.approved_by}: {order.override_acceptance}"


def _reference(site: Site, lock: LockDocument) -> dict[str, bool]:
    """Reference nodes that a lock is for -> whether their model is a stand-in."""
    fleet = site.fleet
    return {
        name: site.model(fleet.kinds[fleet.nodes[name].kind].model).stand_in
        for name in fleet.groups.get(REFERENCE, ())
        if fleet.nodes[name].kind in lock.kinds
    }


def _questions(
    site: Site, lock: LockDocument, policy: Policy, nodes: Collection[Node], order: Order
) -> tuple[str, ...]:  # fmt: skip
    """What each changed node answers before it returns; nothing on the word of who goes without an acceptance.

    Raises:
        Refused: that word has no name.
        BadInput: a kind of node has no profile to be asked by; no node is touched for that.
    """
    questions = node_questions(policy, lock, reference=_reference(site, lock))
    if questions and order.override_acceptance:
        if not order.approved_by:
            raise Refused(UNNAMED)
        return ()
    kinds = sorted({node.kind for node in nodes}) if questions else []
    remedy = (
        "write it, as in images/training/profiles, set rollout.node_questions: [] in the environment,"
        " or go without: --override-acceptance REASON --approved-by NAME"
    )
    missing = [path for kind in kinds if not (path := profile_path(site, kind)).is_file()]
    if missing:
        raise BadInput([Fault(shown(path), None, "no such file, by which nodes are asked", remedy) for path in missing])
    return questions


def _asked_for(site: Site, environment: Environment, order: Order) -> list[Node]:
    nodes = site.fleet.nodes_of(environment.kinds)
    if order.limit is None:
        return nodes
    unknown = set(order.limit) - {node.name for node in nodes}
    if unknown:
        raise BadInput(
            f"{fold_names(unknown)}: no node that environment {environment.name} is for"
            f" (kinds {', '.join(environment.kinds)})"
        )
    return [node for node in nodes if node.name in set(order.limit)]


def _accepted(order: Order) -> list[RuleException]:
    """The rules that a person said may be broken this time."""
    if order.accept and not (order.approved_by and order.reason):
        raise Refused(f"to accept {', '.join(order.accept)} needs --approved-by NAME --reason TEXT")
    return [RuleException(rule, order.reason or "", order.approved_by or "") for rule in dict.fromkeys(order.accept)]


def _policy(environment: Environment, order: Order) -> Policy:
    """The environment's policy, with another failure budget where a person gave the word for it."""
    policy, budget = environment.policy, order.failure_budget
    for word in (order.approved_by, order.reason, order.override_acceptance):
        if word and JINJA.search(word):
            raise BadInput(f"{word!r} has a Jinja delimiter: Ansible would evaluate it")
    if order.approve and not (order.approved_by and order.reason):
        raise Refused(f"to approve {', '.join(order.approve)} needs --approved-by NAME --reason TEXT")
    for name in order.approve:
        if name not in policy.approvals:
            waiting = ", ".join(policy.approvals) or "none"
            raise BadInput(f"--approve {name}: batches of {environment.name} that wait for a word: {waiting}")
    if budget is None:
        return policy
    if budget < 0:
        raise BadInput(f"a failure budget of {budget}: a number of nodes, 0 or more")
    if budget > policy.failure_budget and not (order.approved_by and order.reason):
        raise Refused(
            f"a failure budget of {budget} is above the policy's {policy.failure_budget}: "
            "needs --approved-by NAME --reason TEXT"
        )
    return replace(policy, failure_budget=budget)


def planned(readiness: Readiness, world: World, *, recheck: bool = False) -> Plan:
    return make_plan(
        readiness.nodes, world.nodes, readiness.lock.identity, readiness.policy, recheck=recheck,
        power=readiness.site.fleet.power,
    )  # fmt: skip


def next_for(readiness: Readiness, plan: Plan, world: World, number: int) -> list[Step]:
    """What is to be done with nodes that this rollout left behind, by the policy's word; none that it did not begin."""
    states = {name: world.state(name) for name in plan.nodes}
    bad = [name for name, state in states.items() if state.status in BAD and state.rollout == number]
    fleet = readiness.site.fleet
    return next_steps(readiness.policy, world, fleet, bad, fleet.groups.get(SPARES, ()))


def plan_sha256(readiness: Readiness, plan: Plan) -> str:
    """What a person saw when a plan was shown: its target, its batches, and how they go."""
    return identity({
        "identity": readiness.lock.identity, "plan": plan.as_dict(), "policy": readiness.policy.as_dict(),
    })  # fmt: skip


@dataclass(frozen=True)
class Soak:
    """How long the next batch waits, and which nodes must be healthy then."""

    wait_s: float = 0.0
    nodes: tuple[str, ...] = ()


class Session:
    """One rollout while it runs."""

    def __init__(self, site: Site, order: Order, *, dry: bool) -> None:
        self.dry = dry
        self.order = order
        with Ledger.read(site.ledger_url) as known:
            self.readiness = ready(site, order, known)  # first: what is refused leaves no file behind
            if dry and (busy := controllerlock.anybody(site, known)):
                raise Busy(busy.said)
        with contextlib.ExitStack() as undo:  # of an opening that is refused: the next one must not find it locked
            self.controller_lock = None if dry else controllerlock.acquire(controllerlock.place(site))
            if self.controller_lock is not None:
                undo.callback(controllerlock.release, self.controller_lock)
            self.ledger = Ledger.scratch(site.ledger_url) if dry else Ledger.open(site.ledger_url)
            undo.callback(self.ledger.close)
            if not dry:
                controllerlock.claim(self.ledger)
            self._open(site)
            undo.pop_all()

    def _open(self, site: Site) -> None:
        order = self.order
        self.site, self.lock = site, self.readiness.lock
        self._world = projection.world(self.ledger)
        self.plan = planned(self.readiness, self._world, recheck=order.recheck or order.reinstall)
        self._refuse_other_plan()
        self.proven = self._proven()
        self.followed_sha256 = checkout.followed_sha256()
        self.number = max(self._world.rollouts, default=0) + 1
        self.batch = -1
        self.gates = 0
        self.verdict: Verdict | None = None
        self._results: dict[tuple[str, str], list[str]] = {}
        self._spent_s: dict[str, float] = {}
        self._ended: dict[str, float] = {}  # node -> when it was done, by the monotonic clock
        self._zone = _zone(self.readiness.policy.timezone)
        self.soak = Soak()
        self.late: dict[str, str] = {}
        self.dead = [r.number for r in self._world.rollouts.values() if r.ended is None]
        if self.controller_lock is not None:
            controllerlock.describe(self.controller_lock, {
                "rollout": self.number, "environment": self.lock.name, "actor": self.ledger.actor,
                "since": datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds"),
            })  # fmt: skip
        *_, started = self.ledger.append(
            *(Draft("rollout.abandoned", (f"{ROLLOUT}{n}",), {"found_by": self.number}) for n in self.dead),
            *(self._draft("rollout.approved", body=self._word() | {"batch": name}) for name in order.approve),
            self._draft("rollout.started", body=self._about()),
        )
        self.approved = {
            str(event.body["batch"])
            for event in self.ledger.events(kinds=["rollout.approved"], subject=f"environment:{self.lock.name}")
            if event.environment == self.lock.identity
        }
        self.mark = mark_of(started)
        # Rollouts that ended or were abandoned: their locks on nodes may be taken over.
        self.ended_marks = [r.mark for r in self.world().rollouts.values() if r.ended is not None]

    @property
    def drain_reason(self) -> str:
        """What stands in Slurm while a node is drained; library/bedplate_slurm_nodes.py knows ours by how it begins."""
        return f"bedplate: rollout {self.number} to {self.lock.name}"

    def _refuse_other_plan(self) -> None:
        """Refuse when fleet, ledger or policy changed since the plan was shown."""
        wanted, now = self.order.plan_sha256, plan_sha256(self.readiness, self.plan)
        if wanted and wanted != now:
            raise Refused(
                f"the plan that was shown, {wanted[:19]}, no longer fits the fleet: it would be {now[:19]} now, as the"
                f" nodes, what the ledger says of them, or the policy changed (run: bedplate plan {self.lock.name})"
            )

    def _proven(self) -> dict[str, Digested]:
        """Nodes of the plan that the ledger has at the target, with the digest of their state when that was proven."""
        found = {}
        for node in [] if self.order.reinstall else self.plan.nodes:
            state = self._world.state(node)
            if not state.at_target(self.lock.identity) or not state.state_sha256:
                continue
            files = manifest_sha256(rendered(self.site, self.lock.name, node))
            if files == state.manifest_sha256:  # else the fleet says something else of it since
                found[node] = Digested(state.state_sha256, dict(state.facts), files)
        return found

    def _word(self) -> dict[str, str]:
        return {"approved_by": self.order.approved_by or "", "reason": self.order.reason or ""}

    def _about(self) -> dict[str, Any]:
        return {
            "bedplate": dict(checkout.itself()),
            "environment": self.lock.name, "pid": os.getpid(), "command": list(self.order.command),
            "token": os.environ.get("BEDPLATE_TOKEN", ""), "policy": self.readiness.policy.as_dict(),
            "plan": self.plan.as_dict(), "plan_sha256": plan_sha256(self.readiness, self.plan),
            "recheck": self.order.recheck, "retries": self._retries(),
            **({"reinstall": True} if self.order.reinstall else {}), **self._word(),
            "rules": [finding.as_dict() for finding in self.readiness.findings],
            "acceptance": self.readiness.acceptance, "override_acceptance": self.order.override_acceptance or "",
        }  # fmt: skip

    def _retries(self) -> dict[str, int]:
        """Node -> the rollout that it failed in, or was left in doubt by, and that is tried again now."""
        again = {name: self._world.state(name).rollout for name in (*self.plan.in_doubt, *self.plan.bad)}
        return {name: number for name, number in again.items() if number is not None}

    def _draft(self, kind: str, nodes: Collection[str] = (), body: Mapping[str, Any] | None = None) -> Draft:
        subjects = (
            f"{ROLLOUT}{self.number}",
            f"environment:{self.lock.name}",
            *(f"node:{node}" for node in nodes),
        )
        return Draft(kind, subjects, dict(body or {}), self.lock.identity)

    def world(self) -> World:
        """What the ledger says now."""
        self._world = fold(self.ledger.events(after=self._world.head), self._world)
        return self._world

    def states(self) -> dict[str, NodeState]:
        """The nodes that the fleet has now: one that was taken out of it holds up nobody."""
        return {name: state for name, state in self.world().nodes.items() if name in self.site.fleet.nodes}

    # --- batches and gates, in the main process -------------------------------------------------

    def next_batch(self) -> None:
        self.flush()
        self.batch += 1
        self.gates = 0
        self.verdict = None

    def judge(self) -> None:
        """At a gate task: the batch's first gate admits it, later ones hold it back."""
        self.flush()
        self.verdict = None
        entering = self.gates == 0
        states = self.states()
        verdict = judge(self.plan, self.batch, states, self.readiness.policy.failure_budget, entering=entering)
        if verdict.go and entering and not self.dry:
            verdict = replace(verdict, reason=self._other_recipe() or self._why_not_now())
        nodes = verdict.nodes
        if verdict.go and entering:
            name = self.plan.batches[self.batch].name
            self.ledger.append(self._draft("batch.admitted", nodes, {"batch": self.batch, "name": name}))
        elif not verdict.go:
            # Later gates stand before the first disruptive step: nodes that did not fail are untouched.
            untouched = [] if entering else [n for n in nodes if states[n].status is Status.IN_DOUBT]
            held = self._draft("batch.held", untouched, {"batch": self.batch, "reason": verdict.reason})
            self.ledger.append(self._stop(self.batch, verdict.reason), *([held] if untouched else []))
        self.gates += 1
        self.verdict = verdict

    def _other_recipe(self) -> str:
        """Why no further batch begins where the checkout is another one by now: Ansible reads it batch by batch."""
        if checkout.followed_sha256() == self.followed_sha256:
            return ""
        return (
            f"playbooks, roles or checks of {checkout.root()} were changed while it runs (git pull, an editor):"
            " its nodes would be of two recipes; put them back, or call the same command anew with what is there now"
        )

    def _why_not_now(self) -> str:
        return why_not_now(
            self.readiness.policy, self.plan.batches[self.batch], now=datetime.datetime.now(self._zone),
            approved=self.approved, name=self.lock.name,
        )  # fmt: skip

    def to_soak(self) -> None:
        """Before a batch is admitted: how long it waits, and whom of the batch before it asks once more."""
        self.flush()
        soak_s, before = self.readiness.policy.soak_s, self.batch - 1
        self.soak = Soak()
        if self.dry or not soak_s:
            return
        if before < 0:
            self.soak = self._cut_off(soak_s)
            return
        states = self.states()
        done = [name for name in self.plan.batches[before].nodes if states[name].at_target(self.lock.identity)]
        if done:
            # By a clock that nobody sets: one that was set forth would leave out the soak, and no gate would know.
            now = time.monotonic()
            waited = now - max(self._ended.get(name, now) for name in done)
            self.soak = Soak(max(0.0, soak_s - waited), tuple(done))

    def _cut_off(self, soak_s: int) -> Soak:
        """What is left of the soak of a rollout that was killed: its batch was done, and nobody asked it again."""
        states = self.states()
        killed = {record.number for record in self._world.rollouts.values() if record.outcome == "abandoned"}
        left = [
            name for name, state in states.items()
            if state.at_target(self.lock.identity) and state.rollout in killed and state.verified_at != state.at
        ]  # fmt: skip
        if not left:
            return Soak()
        ended = max(datetime.datetime.fromisoformat(states[name].at or "") for name in left)
        waited = (datetime.datetime.now(datetime.UTC) - ended).total_seconds()
        # By the ledger's clock, as no other outlives a process; one that was set back waits no longer than the policy.
        return Soak(min(float(soak_s), max(0.0, soak_s - waited)), tuple(left))

    def worked(self, node: str, seconds: float) -> None:
        """Count time that a node's own step took; past the policy's deadline the node has failed."""
        spent = self._spent_s[node] = self._spent_s.get(node, 0.0) + seconds
        deadline = self.readiness.policy.node_deadline_s
        if spent > deadline and node not in self.late:
            self.late[node] = f"its steps took {spent:.0f} s, the policy's deadline for a node is {deadline} s"

    # --- results of nodes, in the main process --------------------------------------------------

    def result(self, node: str, step: str, outcome: str) -> None:
        """Note how a step went on a node: ok, changed, skipped or ignored; written with the task's others."""
        self._results.setdefault((step, outcome), []).append(node)

    def failed(self, node: str, step: str, why: str, *, unreachable: bool) -> None:
        self.flush()
        kind = "node.unreachable" if unreachable else "node.failed"
        self.ledger.append(self._draft(kind, [node], {"step": step, "why": _text(why)[:WHY_LIMIT]}))

    def told(self, node: str, kind: str, body: Mapping[str, Any]) -> None:
        """What a node told before it returns: its answers (act/acceptance.py), how it is (decide/healthevents.py)."""
        self.flush()
        draft = self._draft(kind, [node], body)
        self.ledger.append(draft, *keep_logs(self.site, draft))

    def verified(self, node: str, body: Mapping[str, Any]) -> None:
        self.flush()
        self.ledger.append(self._draft("node.verified", [node], body))

    def soaked(self, found: Mapping[str, Mapping[str, Any]]) -> None:
        """What nodes of the batch before were found to be after its soak; the next gate counts the bad ones."""
        self.flush()
        self.ledger.append(*(self._draft("node.verified", [node], body) for node, body in found.items()))

    def left(self, found: Mapping[str, Mapping[str, Any]]) -> None:
        """Nodes that are what they were when they were proven: nothing to change, and done."""
        if not found:
            return
        self.flush()
        drafts = []
        for node, about in found.items():
            self._ended[node] = time.monotonic()
            hashes = {key: about[key] for key in ("manifest_sha256", "state_sha256")}
            hashes["fleet"] = fields_of(self.site.fleet.nodes[node])
            drafts += [
                self._draft("node.verified", [node], about["verified"]),
                self._draft("node.done", [node], hashes | {"unchanged": True}),
            ]
        self.ledger.append(*drafts)

    def done(self, node: str, manifest_sha256: str, state_sha256: str = "") -> None:
        self.flush()
        body: dict[str, Any] = {"manifest_sha256": manifest_sha256, "fleet": fields_of(self.site.fleet.nodes[node])}
        body |= {"state_sha256": state_sha256} if state_sha256 else {}
        self.ledger.append(self._draft("node.done", [node], body))
        self._ended[node] = time.monotonic()

    def refuse_other_lock(self) -> None:
        """Refuse what a verification found when its lock file is no longer the one that this rollout was opened with.

        Verification reads the file, in processes of its own; what it finds is recorded of the lock of this rollout.

        Raises:
            Refused: a checkout or an editor wrote another one meanwhile.
        """
        found = self.site.lock(self.lock.name).identity
        if found != self.lock.identity:
            raise Refused(
                f"{shown(self.site.lock_path(self.lock.name))} was changed while rollout {self.number} runs: it is"
                f" {found[:19]}, the rollout's is {self.lock.identity[:19]}"
                f" (put it back: bedplate lock {self.lock.name}; then the same command)"
            )

    def flush(self) -> None:
        """Write the noted results: one event for each step and outcome, in one transaction."""
        if self._results:
            noted, self._results = self._results, {}
            self.ledger.append(*(
                self._draft("step.ended", nodes, {"step": step, "result": outcome})
                for (step, outcome), nodes in noted.items()
            ))  # fmt: skip

    def end(self) -> World:
        """Record the end. Ansible ends a play whose whole batch is bad before a gate can: that is a stop as well."""
        self.flush()
        counts: dict[str, int] = {}
        world, states = self.world(), self.states()
        for node in self.plan.nodes:
            begun = node in states and states[node].rollout == self.number
            status = str(states[node].status) if begun else "not begun"
            counts[status] = counts.get(status, 0) + 1
        drafts = [self._draft("rollout.ended", body={"nodes": counts})]
        after = self.batch + 1
        if after < len(self.plan.batches) and world.rollouts[self.number].outcome != "stopped":
            verdict = judge(self.plan, after, states, self.readiness.policy.failure_budget, entering=True)
            reason = verdict.reason or (f"every node of batch {after} is bad" if after else "no batch began")
            drafts.insert(0, self._stop(after, reason))
        self.ledger.append(*drafts)
        return self.world()

    def _stop(self, batch: int, reason: str) -> Draft:
        name = self.plan.batches[batch].name
        return self._draft("rollout.stopped", body={"batch": batch, "name": name, "reason": reason})


def _zone(name: str) -> ZoneInfo:
    try:
        return ZoneInfo(name)
    except (ZoneInfoNotFoundError, ValueError, OSError) as fault:
        raise BadInput(f'rollout.timezone: this machine knows no time zone "{name}" (look: timedatectl)') from fault


current: Session | None = None


def _text(said: str) -> str:
    """What a node said as UTF-8: bytes that are none came as surrogates, which no record can hold."""
    return said.encode(errors="replace").decode()


@cache
def locked(site: Site, environment: str) -> LockDocument:
    """The lock of an environment, read once in a process."""
    return site.lock(environment)


@cache
def _rendering(site: Site, environment: str) -> Rendering:
    return Rendering(locked(site, environment), checkout.roles(), site.surroundings)


@cache
def rendered(site: Site, environment: str, node: str) -> tuple[RenderedFile, ...]:
    """The files of a node under an environment; kept for the life of the process."""
    return tuple(_rendering(site, environment).files(site.fleet.nodes[node]))


def asks_health(site: Site, environment: str, kind: str) -> bool:
    """Whether nodes of a kind are asked how they are: where they look at themselves, somebody said what is healthy."""
    return any(role.name == HEALTH_ROLE for role in roles(site, environment, kind))


def in_slurm(site: Site, environment: str, kind: str) -> bool:
    """Whether nodes of a kind get jobs from Slurm."""
    return any(role.name == SLURM_ROLE for role in roles(site, environment, kind))


@cache
def roles(site: Site, environment: str, kind: str) -> list[Role]:
    """The roles of a kind of node, in their order; their templates are not read for that."""
    return applicable(declared(checkout.roles()), locked(site, environment), kind)
