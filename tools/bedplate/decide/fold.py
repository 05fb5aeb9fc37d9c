"""What every node is, folded from the events of the ledger; nothing here is stored.

Invariants
- A node *runs* an environment when its last change succeeded and a later verification passed.
- A node is *in doubt* from the moment its batch is admitted until an end is recorded; a killed
  controller therefore leaves its nodes in doubt, whatever they really did.
- A node that was admitted and held back before anything happened is what it was before.
- An unknown kind of event changes nothing: older and newer programs can share a ledger.

Example: `batch.admitted [n1]`, `node.verified [n1] PASS`, `node.done [n1]` -> n1 runs the environment.
"""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, replace
from enum import StrEnum
from functools import lru_cache

from bedplate.model.event import Event

NODE = "node:"
ROLLOUT = "rollout:"
VERIFICATION = "verification"  # the step of a node that a verification outside a rollout found bad
# Tasks of playbooks/steps: the one whose good end says that a node is drained, and the one that says it is given back.
DRAINED = "Refuse to change a node that is not drained"
RETURNED = "Refuse to call a node done that Slurm does not use"
DRAINED_NOW = "drained"  # in the body of node.verified: it was found bad at work, and is drained for that


class Status(StrEnum):
    """What is known of a node, best first."""

    VERIFIED = "verified"
    UNVERIFIED = "unverified"
    NEVER = "never seen"
    FAILED = "failed"
    UNREACHABLE = "unreachable"
    RESCUED = "rescued"
    IN_DOUBT = "in doubt"


BAD = frozenset({Status.FAILED, Status.UNREACHABLE, Status.RESCUED, Status.IN_DOUBT})


@dataclass(frozen=True)
class NodeState:
    """One node as the ledger has it.

    runs: identity of the environment of its last completed change; previous: the one before it.
    target, rollout, step, why: of its last attempt. at: UTC time of the event that made it so.
    """

    status: Status = Status.NEVER
    runs: str | None = None
    previous: str | None = None
    target: str | None = None
    rollout: int | None = None
    step: str | None = None
    why: str | None = None
    at: str | None = None
    verified_at: str | None = None
    facts: Mapping[str, str] = field(default_factory=dict)
    manifest_sha256: str | None = None
    state_sha256: str | None = None  # of its own digest of its state, when its last change ended
    passed: bool = False  # the last verification of the target since the last admission passed
    drained: bool = False  # for a rollout, which has not given it back; a person may have, unheard

    def at_target(self, identity: str) -> bool:
        """Whether it is what a rollout would make it: one that is still drained is not, whatever it runs."""
        return self.status is Status.VERIFIED and self.runs == identity and not self.drained


@dataclass(frozen=True)
class RolloutState:
    """One rollout as the ledger has it; ended is None while it runs or after it was killed.

    mark: what its processes on nodes and its locks there are known by; no two rollouts share it.
    """

    number: int
    environment: str | None
    name: str
    started: str
    actor: str
    body: Mapping[str, object]
    mark: str
    ended: str | None = None
    outcome: str = "unfinished"  # unfinished, ended, stopped, abandoned
    reason: str = ""


@dataclass(frozen=True)
class World:
    """Everything folded: nodes by name, rollouts by number, environment names by identity, the last event."""

    nodes: Mapping[str, NodeState]
    rollouts: Mapping[int, RolloutState]
    names: Mapping[str, str]
    head: int
    before: Mapping[str, NodeState] = field(default_factory=dict)  # nodes as they were before their admission

    def state(self, node: str) -> NodeState:
        return self.nodes.get(node, NodeState())


NOTHING = World({}, {}, {}, 0)
NEVER_SEEN = NodeState()
# What changes a node; every other kind may name it.
ABOUT_NODES = frozenset({
    "batch.admitted", "batch.held", "node.failed", "node.unreachable", "step.ended", "node.verified", "node.done",
})  # fmt: skip
ABOUT_BATCHES = frozenset({"batch.admitted", "batch.held"})
ABOUT_ROLLOUTS = frozenset({"rollout.started", "rollout.stopped", "rollout.ended", "rollout.abandoned"})
FOLDED = ABOUT_NODES | ABOUT_ROLLOUTS | {"lock.resolved"}  # every other kind changes nothing here


def fold(
    events: Iterable[Event], world: World = NOTHING, *, changed: Callable[[Event, str, NodeState], None] | None = None
) -> World:
    """Fold events, oldest first, into what they say; world: what the events up to world.head said.

    changed: is told each event that made a node another one, the node, and what it is then.
    """
    nodes, before = dict(world.nodes), dict(world.before)
    rollouts, names = dict(world.rollouts), dict(world.names)
    head = world.head
    for event in events:
        head = event.id
        if event.kind == "lock.resolved" and event.environment:
            names[event.environment] = str(event.body["environment"])
        if event.kind in ABOUT_ROLLOUTS:
            _fold_rollout(rollouts, event)
        if event.kind not in ABOUT_NODES:
            continue
        number = rollout_number(event) if event.kind in ABOUT_BATCHES else None
        for name in _nodes_in(event.subjects):
            now = nodes.get(name, NEVER_SEEN)
            if event.kind == "batch.admitted":
                before[name] = now
                after = _with(
                    now, status=Status.IN_DOUBT, target=event.environment, rollout=number, step=None, why=None,
                    at=event.at, passed=False,
                )  # fmt: skip
            elif event.kind == "batch.held":
                waits = now.status is Status.IN_DOUBT and now.rollout == number
                after = before.get(name, NEVER_SEEN) if waits else now
            else:
                after = _after(now, event)
            nodes[name] = after
            if changed is not None and after is not now:
                changed(event, name, after)
    return World(nodes, rollouts, names, head, before)


def running_names(world: World) -> list[str]:
    """The names of the environments that nodes run, one for each node that runs one."""
    return [world.names[state.runs] for state in world.nodes.values() if state.runs and state.runs in world.names]


def node_names(event: Event) -> list[str]:
    return list(_nodes_in(event.subjects))


@lru_cache(maxsize=4096)
def _nodes_in(subjects: tuple[str, ...]) -> tuple[str, ...]:
    return tuple(subject.removeprefix(NODE) for subject in subjects if subject.startswith(NODE))


def rollout_number(event: Event) -> int | None:
    for subject in event.subjects:
        number = subject.removeprefix(ROLLOUT)
        if number != subject and number.isascii() and number.isdecimal():
            return int(number)
    return None


def mark_of(started: Event) -> str:
    """The mark of the rollout that a rollout.started event began: its number and the hash of that event."""
    return f"{rollout_number(started)}-{started.sha256.removeprefix('sha256:')[:12]}"


def _after(now: NodeState, event: Event) -> NodeState:
    """The state of a node after an event of its own."""
    body = event.body
    match event.kind:
        case "node.failed" | "node.unreachable":
            status = Status.FAILED if event.kind == "node.failed" else Status.UNREACHABLE
            return _with(now, status=status, step=_text(body, "step"), why=_text(body, "why"), at=event.at)
        case "step.ended":
            went, step = body.get("result") in ("ok", "changed"), _text(body, "step")
            rescued = went and now.status is Status.FAILED
            drained = step == DRAINED if went and step in (DRAINED, RETURNED) else now.drained
            return _with(now, step=step, status=Status.RESCUED if rescued else now.status, drained=drained)
        case "node.verified":
            return _verified(now, event)
        case "node.done" if now.status is Status.IN_DOUBT:
            previous = now.runs if now.runs != event.environment else now.previous
            return _with(
                now, status=Status.VERIFIED if now.passed else Status.UNVERIFIED, runs=event.environment,
                previous=previous, step=None, why=None, at=event.at, drained=False,
                manifest_sha256=_text(body, "manifest_sha256"), state_sha256=_text(body, "state_sha256"),
            )  # fmt: skip
        case _:
            return now


def _verified(now: NodeState, event: Event) -> NodeState:
    """A verification inside a change waits for its end; one outside it judges what the node runs.

    One against another environment than that is a question somebody asked, and no news of this node's state.
    """
    body = event.body
    passed = body.get("verdict") == "PASS"
    facts = body.get("facts")
    news: dict[str, object] = {"facts": {str(k): str(v) for k, v in facts.items()}} if facts else {}
    judged = now.target if now.status is Status.IN_DOUBT else now.runs
    if judged is None or event.environment != judged:
        return _with(now, **news) if news else now
    if passed:
        news["verified_at"] = event.at
    elif body.get(DRAINED_NOW) is True:
        news["drained"] = True
    if now.status is Status.IN_DOUBT:
        news["passed"] = passed
    elif now.status in BAD and now.step != VERIFICATION:
        pass  # a failed change is not mended by a check that passes: it is tried again
    elif passed:
        news |= {"status": Status.VERIFIED, "step": None, "why": None, "at": event.at}
    else:
        unreachable = body.get("verdict") == "UNREACHABLE"
        news |= {
            "status": Status.UNREACHABLE if unreachable else Status.FAILED, "step": VERIFICATION,
            "why": _text(body, "why"), "at": event.at,
        }  # fmt: skip
    return _with(now, **news)


def _with(state: NodeState, **changes: object) -> NodeState:
    """dataclasses.replace, at an eighth of its cost: a million events name their nodes some three million times."""
    new = object.__new__(NodeState)
    new.__dict__.update(state.__dict__)
    new.__dict__.update(changes)
    return new


def _fold_rollout(rollouts: dict[int, RolloutState], event: Event) -> None:
    number = rollout_number(event)
    if number is None:
        return
    if event.kind == "rollout.started":
        rollouts[number] = RolloutState(
            number, event.environment, str(event.body.get("environment")), event.at, event.actor, event.body,
            mark_of(event),
        )  # fmt: skip
        return
    known = rollouts.get(number)
    if known is None:
        return
    if event.kind == "rollout.stopped":
        rollouts[number] = replace(known, outcome="stopped", reason=str(event.body.get("reason", "")))
    elif event.kind == "rollout.ended":
        outcome = known.outcome if known.outcome == "stopped" else "ended"
        rollouts[number] = replace(known, outcome=outcome, ended=event.at)
    elif event.kind == "rollout.abandoned":
        rollouts[number] = replace(known, outcome="abandoned", ended=event.at)


def _text(body: Mapping[str, object], key: str) -> str | None:
    value = body.get(key)
    return None if value is None else str(value)
