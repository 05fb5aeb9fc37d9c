"""Answers out of the record: what it says, with the events that say so."""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from bedplate.decide.fold import NodeState, Status
from bedplate.decide.ledgerhistory import Change
from bedplate.model.event import Event

LOCKED = "lock.resolved"
MADE = "checkpoint.made"
VERDICTS = ("checkpoint.readable", "checkpoint.unreadable", "checkpoint.unknown")
ADMITTED = str(Status.IN_DOUBT)
MOST = 5  # changes behind the end of a rollout that are told


def chain_of(changes: Sequence[Change], latest: int) -> tuple[int, int | None, list[int]]:
    """Which events explain the last of a node's changes; latest: the last event that changed anything of it.

    Returns: the event with which its last change of environment began (0: none), the one that ended it (None: it did
    not end), and the ids of what made it what it is, these two among them.
    """
    begins = max((at for at, one in enumerate(changes) if one.status == ADMITTED), default=None)
    if begins is None:
        ids = [one.event for one in changes]
        return 0, None, sorted({*ids[:1], *ids[-MOST:], latest} - {0})
    began, after = changes[begins].event, [one.event for one in changes[begins + 1 :]]
    if not after:
        return began, None, [began]
    return began, after[0], sorted({began, after[0], *after[-MOST:], latest} - {0})


def sentence(node: str, state: NodeState, names: Mapping[str, str]) -> str:  # noqa: PLR0911  a table
    """What a node is, in one sentence."""

    def called(identity: str | None) -> str:
        return "nothing that the ledger knows" if identity is None else f"{names.get(identity, '?')} {identity[:19]}"

    runs, tried = called(state.runs), called(state.target)
    step = f" at {state.step!r}" if state.step else ""
    why = f": {' '.join(state.why.split())}" if state.why else ""
    match state.status:
        case Status.NEVER:
            return f"{node} was never changed nor verified"
        case Status.VERIFIED:
            return f"{node} runs {runs}, verified {state.verified_at}"
        case Status.UNVERIFIED:
            return f"{node} was changed to {runs}, and no verification has passed since"
        case Status.IN_DOUBT:
            return f"{node} is in doubt: rollout {state.rollout} to {tried} began with it and recorded no end{step}"
        case Status.UNREACHABLE:
            return f"{node} could not be reached{step} (rollout {state.rollout} to {tried}; before: {runs}){why}"
        case Status.RESCUED:
            return f"{node} failed and went on: it counts as failed{step} (to {tried}; before: {runs}){why}"
        case Status.FAILED:
            return f"{node} failed{step} (to {tried}; before: {runs}){why}"


def of_checkpoint(events: Iterable[Event], word: str) -> list[Event]:
    """The events about a checkpoint, by its path, the end of its path, or its fingerprint."""
    path = word.rstrip("/")
    return [
        event
        for event in events
        if any(subject.removeprefix("checkpoint:").rstrip("/") == path for subject in event.subjects)
        or str(event.body.get("fingerprint", "")) == word
    ]


def image_of(lock: Event | None) -> Mapping[str, Any] | None:
    """The image in the lock that an event recorded."""
    if lock is None:
        return None
    image: Mapping[str, Any] | None = lock.body.get("document", {}).get("image")
    return image


def not_running(nodes: Iterable[str], runs: Mapping[str, str | None], identity: str) -> list[str]:
    """Of nodes, those that do not run an environment by what the ledger knows."""
    return [node for node in nodes if runs.get(node) != identity]
