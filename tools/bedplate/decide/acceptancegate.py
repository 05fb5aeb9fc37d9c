"""Whether an environment may leave the reference nodes: a passed acceptance of it on one of them, or a person's word.

Invariants
- A reference node's newest acceptance of the environment counts; one that was refused after it passed is no pass.
- Every question passed, through the launch path of production: a job of the scheduler where the lock manages one.
- An environment reaches the reference nodes themselves without it: how else would it be accepted there.
- Where no reference machine could be asked there is no gate, and that is said; stand-ins prove nothing of machines.
- Where there is a gate each node that was changed answers some of the questions itself before it returns.
"""

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass

from bedplate.decide.acceptance import ACCEPTED, KINDS, QUESTIONS, RETURNING
from bedplate.decide.fold import node_names
from bedplate.decide.lockdoc import LockDocument
from bedplate.model.event import Event
from bedplate.model.nodes import fold
from bedplate.model.policy import Policy

PASSED = "passed"
REQUIRED = "required"  # of Policy.acceptance
PRODUCTION = "slurm"  # the engine of an acceptance through the scheduler
REFERENCE = "reference"  # the group of fleet.yml


@dataclass(frozen=True)
class AcceptanceGate:
    """said: the plan's one line; refusal: why the rollout may not begin, empty where it may."""

    said: str
    refusal: str = ""


def node_questions(policy: Policy, lock: LockDocument, *, reference: Mapping[str, bool]) -> tuple[str, ...]:
    """What each changed node answers before it returns, in the order in which it is asked; reference: as below."""
    if lock.image is None:
        return ()
    if policy.node_questions is not None:
        return tuple(name for name in QUESTIONS if name in policy.node_questions)
    real = any(not stand_in for stand_in in reference.values())
    return RETURNING if real or (reference and policy.acceptance == REQUIRED) else ()


def node_engine(lock: LockDocument, kind: str) -> str:
    """What starts the image on a drained node, to which Slurm gives no job: its own Enroot, or else its Docker."""
    return "enroot" if "enroot" in lock.packages(kind) else "docker"


def acceptance_gate(
    lock: LockDocument, *, asked: Collection[str], reference: Mapping[str, bool], required: bool,
    events: Iterable[Event],
) -> AcceptanceGate:  # fmt: skip
    """Judge a rollout of a lock to some nodes.

    asked: the nodes; reference: reference node that the lock is for -> whether its model is a stand-in; required: the
    environment asks for the gate on stand-ins as well.
    """
    if not reference:
        return AcceptanceGate("no acceptance gate: the fleet names no reference node that this environment is for")
    if all(reference.values()) and not required:
        return AcceptanceGate(f"no acceptance gate: {fold(reference)} are stand-ins, and prove nothing of a machine")
    if set(asked) <= reference.keys():
        return AcceptanceGate(f"no acceptance needed: only reference nodes are asked for ({fold(asked)})")
    newest: dict[str, Event] = {}
    for event in events:
        if event.kind in KINDS and event.environment == lock.identity:
            newest |= dict.fromkeys(node_names(event), event)
    faults = []
    for name, stand_in in reference.items():
        why = _why_not(lock, newest.get(name), stand_in=stand_in)
        if not why:
            return AcceptanceGate(f"accepted on {name}: event {newest[name].id}, {newest[name].at[:19]}Z")
        faults.append(f"{name}: {why}")
    shown = "; ".join(faults[:5]) + (f"; and {len(faults) - 5} more" if len(faults) > 5 else "")  # noqa: PLR2004
    first = next(iter(reference))
    return AcceptanceGate(
        "not accepted",
        f"environment {lock.name} has no passed acceptance on a reference node ({shown})"
        f" (run: bedplate rollout {lock.name} --nodes {first}; bedplate node accept {first} --env {lock.name};"
        " or --override-acceptance REASON --approved-by NAME)",
    )


def _why_not(lock: LockDocument, event: Event | None, *, stand_in: bool) -> str:
    """Why an acceptance does not count; empty where it does."""
    if event is None:
        return "never asked under it"
    body = event.body
    if event.kind != ACCEPTED or body.get("verdict") != PASSED:
        return f"refused, event {event.id}: {body.get('why') or 'no reason given'}"
    questions = body.get("questions") or {}
    open_ = [name for name in QUESTIONS if (questions.get(name) or {}).get("verdict") != PASSED]
    if open_:
        return f"event {event.id} has no passed answer to {', '.join(open_)}"
    if body.get("stand_in") is not False and not stand_in:
        return f"event {event.id} was answered by stand-ins"
    if body.get("engine") != PRODUCTION and lock.unmanaged("scheduler") is None:
        return f"event {event.id} was started by {body.get('engine')}, not as jobs are"
    return ""
