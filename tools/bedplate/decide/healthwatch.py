"""What the controller's health service remembers, folded from the ledger: it keeps nothing of its own.

health.changed   {"run", "verdict", "failing", "reason", "boot_id", "findings"} about node:NAME: it fails something else
health.drained   {"reason", "run"} about node:NAME: written before Slurm is asked, so that nothing happens unrecorded
health.returned  {"reason", "run"} about node:NAME: likewise
health.left      {"asked", "why"} about node:NAME: Slurm had something else there, or did not answer
health.stopped   {"why", "limit", "fleet"}: the breaker; nothing more is drained
health.resumed   {"approved_by", "reason", "why"}: a person has looked
node.ticket      about node:NAME: it is being repaired, and comes back by `bedplate node return`
node.repaired    about node:NAME: it passed everything
"""

import datetime
from collections.abc import Iterable, Mapping
from dataclasses import replace

from bedplate.decide.healthdrain import DRAIN, SILENT, TELL, WINDOW_S, Step, Watch, most, newly
from bedplate.model.event import Draft, Event
from bedplate_agent.sinks import Result, reason, summary

CHANGED, DRAINED, RETURNED, LEFT = "health.changed", "health.drained", "health.returned", "health.left"
STOPPED, RESUMED = "health.stopped", "health.resumed"
TICKET, REPAIRED = "node.ticket", "node.repaired"
KINDS = (CHANGED, STOPPED, RESUMED, TICKET, REPAIRED)
FINDINGS = 5  # of a node in an event: a broken driver fails dozens of checks


def watch(events: Iterable[Event], state: Watch | None = None) -> Watch:
    """Fold events, oldest first."""
    state = state or Watch()
    failing, since = dict(state.failing), dict(state.since)
    tripped, tickets = state.tripped, set(state.tickets)
    for event in events:
        names = [subject.removeprefix("node:") for subject in event.subjects if subject.startswith("node:")]
        if event.kind == CHANGED:
            now_s, checks = seconds(event.at), frozenset(map(str, event.body["failing"]))
            for name in names:
                for check in newly(failing.get(name, frozenset()), checks):
                    since[check, name] = now_s
                failing[name] = checks
            since = {key: at for key, at in since.items() if now_s - at <= WINDOW_S}
        elif event.kind == STOPPED:
            tripped = str(event.body["why"])
        elif event.kind == RESUMED:
            tripped, since = "", {}
        elif event.kind == TICKET:
            tickets.update(names)
        elif event.kind == REPAIRED:
            tickets.difference_update(names)
    return replace(state, failing=failing, since=since, tripped=tripped, tickets=frozenset(tickets))


def drafts(before: Watch, step: Step, results: Mapping[str, Result], *, fleet: int) -> list[Draft]:
    """What a step is recorded as, before anything of it is done."""
    found = []
    for name, checks in step.state.failing.items():
        if checks == before.failing.get(name, frozenset()):
            continue
        result = results[name]
        told = summary(result)
        body = {
            "run": result.run, "verdict": result.verdict, "failing": sorted(checks), "reason": reason(result),
            "boot_id": result.boot_id, "findings": told["findings"][:FINDINGS],
        }  # fmt: skip
        found.append(Draft(CHANGED, (f"node:{name}",), body))
    for action in step.actions:
        if action.what == DRAIN:
            body = {"reason": action.reason, "run": results[action.node].run}
            found.append(Draft(DRAINED, (f"node:{action.node}",), body))
    if step.state.tripped and not before.tripped:
        body = {"why": step.state.tripped, "limit": most(fleet), "fleet": fleet}
        found.append(Draft(STOPPED, ("health:breaker",), body))
    return found


def told(step: Step) -> list[str]:
    return [action.reason for action in step.actions if action.what == TELL]


def seconds(at: str) -> int:
    """A time of the ledger in seconds since 1970."""
    return int(datetime.datetime.fromisoformat(at).timestamp())


def failing_now(state: Watch) -> list[str]:
    """Nodes that fail something, silence left out."""
    return sorted(name for name, checks in state.failing.items() if checks - {SILENT})
