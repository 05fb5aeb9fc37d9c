"""What may be done to a machine's power: decided from the ledger; how it went becomes an event.

- A machine loses its power only where the ledger knows that nothing runs on it: drained by a rollout and not given
  back since, within a day, or in the middle of an installation. Otherwise a person gives the word, with a name.
- A BMC that names another serial number than nodes.csv is never obeyed: its address is another machine's.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from enum import StrEnum
from typing import Any

from bedplate.decide.fold import DRAINED, node_names, rollout_number
from bedplate.decide.netboot.protocol import Install, Phase
from bedplate.model.event import Draft, Event

KIND = "power.done"
DRAIN_KINDS = ("step.ended", "node.failed", "node.unreachable", "node.done", "batch.admitted")
# Tasks of playbooks/steps: those whose good end says that no job runs on a node, and the first one that gives it back.
DRAINED_STEPS = frozenset({DRAINED, "Say that there is nothing to drain"})
RETURN_STEP = "Release the node's lock"
TRUSTED = timedelta(days=1)  # people resume nodes by hand too, which the ledger does not see
INSTALLING = frozenset({Phase.BOOTING, Phase.SEEDED, Phase.CHECKED, Phase.INSTALLING, Phase.INSTALLED, Phase.FAILED})
"""Phases in which no job can run: the machine was restarted into the installer, and has no system of its own yet."""


class Action(StrEnum):
    STATUS = "status"
    ON = "on"
    OFF = "off"
    CYCLE = "cycle"
    NETBOOT = "netboot"


SAYS = {
    Action.ON: "switched on",
    Action.OFF: "switched OFF at once, whatever runs on them",
    Action.CYCLE: "restarted at once, whatever runs on them",
    Action.NETBOOT: "restarted at once, and boot from the network this one time",
}
DISRUPTIVE = frozenset({Action.OFF, Action.CYCLE, Action.NETBOOT})


@dataclass(frozen=True)
class Outcome:
    """What came of one machine. result: ok, failed, refused; before, after: on, off, or unknown."""

    node: str
    result: str
    why: str = ""
    by: str = ""
    before: str = "unknown"
    after: str = "unknown"
    serial: str | None = None
    firmware: str | None = None

    @property
    def ok(self) -> bool:
        return self.result == "ok"


def drained(events: Iterable[Event], now: datetime) -> dict[str, str]:
    """Nodes that a rollout drained and did not give back, each with how it is known; events of DRAIN_KINDS."""
    known: dict[str, tuple[str, str]] = {}
    for event in events:
        step = event.body.get("step")
        for name in node_names(event):
            if event.kind == "step.ended" and step in DRAINED_STEPS and event.body.get("result") in ("ok", "changed"):
                known[name] = event.at, f"drained by rollout {rollout_number(event)}, {event.at}"
            elif event.kind == "node.done" or step == RETURN_STEP:
                known.pop(name, None)
    return {name: how for name, (at, how) in known.items() if now - datetime.fromisoformat(at) <= TRUSTED}


def quiet(events: Iterable[Event], installs: Mapping[str, Install], now: datetime) -> dict[str, str]:
    """Nodes on which nothing runs, as far as the ledger knows, each with how it is known."""
    at_work = {name: f"is being installed: {each.phase}" for name, each in installs.items() if each.phase in INSTALLING}
    return at_work | drained(events, now)


def loud(action: Action, nodes: Sequence[str], known: Mapping[str, str]) -> list[str]:
    """Nodes to which it may not be done without a person's word."""
    return [node for node in nodes if node not in known] if action in DISRUPTIVE else []


def serial_fault(told: str | None, wanted: str, *, approved: bool) -> str:
    """Why a BMC is not obeyed; nothing where it is that of the right machine."""
    if told is None or not told.strip():
        if approved:
            return ""
        return "its BMC tells no serial number: whose is it? (--approved-by NAME, or correct bmc_address)"
    if told.strip() != wanted:
        return f"its BMC says serial {told.strip()[:64]!r}, nodes.csv says {wanted!r}: bmc_address is another machine's"
    return ""


def wanted_state(action: Action) -> str | None:
    """The state in which an action leaves a machine, where that can be waited for."""
    return {Action.ON: "on", Action.OFF: "off"}.get(action)


def done(action: Action, outcome: Outcome, *, approved_by: str, known: str, verified: bool) -> Draft:
    """The event of one machine; verified: whether the BMC's certificate was."""
    body: dict[str, Any] = {
        "action": str(action), "result": outcome.result, "why": outcome.why[:500], "by": outcome.by,
        "before": outcome.before, "after": outcome.after, "serial": outcome.serial, "firmware": outcome.firmware,
        "approved_by": approved_by, "known": known, "verified": verified,
    }  # fmt: skip
    return Draft(KIND, (f"node:{outcome.node}",), body)
