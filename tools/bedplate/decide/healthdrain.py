"""What Slurm's controller does about verdicts: drain, undrain, or stop and call a person. Pure; one step a call.

- A node is drained for FAIL only. ERROR is no verdict: a person is told, no job is lost for it.
- Only a reason with our prefix is ever changed or taken away; a node that others drained stays as it is.
- A node returns when it passed everything in another run than the one that its reason names, and not before; one with
  a ticket does not: its repair ends with `bedplate node return`.
- The breaker: more than max(3, 2 % of the fleet) nodes that newly fail one check within ten minutes are no node
  faults but a bad rollout, limit or server. Nothing more is drained from then on, whatever the check, until a person
  has looked. Drains that were decided in the step that trips it are not made either.
- Nodes that something else is at work on (a rollout) are left out: what is half done fails, and that is no news.

    state = Watch()
    step = decide(state, now_s=..., fleet=660, results=..., drained={"n7": "HC:gpu.count 0123456789ab"})
    for action in step.actions: ...
    state = step.state
"""

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace

from bedplate.model.nodes import fold
from bedplate_agent.sinks import PREFIX, RUN_LENGTH, Result, reason
from bedplate_agent.verdict import ERROR, FAIL, PASS, WARN

WINDOW_S = 600
LEAST, PERCENT = 3, 2
FRESH_S = 900  # of a result: older ones decide nothing; the timer runs each five minutes
DRAIN, UNDRAIN, TELL = "drain", "undrain", "tell"
SILENT = "(no verdict)"  # stands among the failed checks of a node that said nothing, so that it is told once


@dataclass(frozen=True)
class Action:
    """What to do; node: "" of TELL. reason: Slurm's, or what a person is told."""

    what: str
    node: str
    reason: str


@dataclass(frozen=True)
class Watch:
    """What is remembered from step to step.

    failing: node -> the checks that it failed in its last result; since: (check, node) -> when it began, in seconds;
    tripped: why nothing is drained any more; tickets: nodes that are being repaired.
    """

    failing: Mapping[str, frozenset[str]] = field(default_factory=dict)
    since: Mapping[tuple[str, str], int] = field(default_factory=dict)
    tripped: str = ""
    tickets: frozenset[str] = frozenset()

    def reset(self) -> "Watch":
        """A person has looked: begin to count anew."""
        return replace(self, tripped="", since={})


@dataclass(frozen=True)
class Step:
    state: Watch
    actions: tuple[Action, ...]


def most(fleet: int) -> int:
    """How many nodes may newly fail one check within the window."""
    return max(LEAST, fleet * PERCENT // 100)


def decide(
    state: Watch, *, now_s: int, fleet: int, results: Sequence[tuple[int, Result]], drained: Mapping[str, str],
    busy: Collection[str] = (),
) -> Step:  # fmt: skip
    """One step.

    results: (when it was reached, result), at most one a node; drained: node -> Slurm's reason, of all that are, or
    are down; busy: nodes that something else is at work on.
    """
    fresh = [result for at, result in results if now_s - at <= FRESH_S and result.node not in busy]
    failing = {result.node: failed(result) for result in fresh}
    since = {key: at for key, at in state.since.items() if now_s - at <= WINDOW_S}
    for node, checks in failing.items():
        for check in newly(state.failing.get(node, frozenset()), checks):
            since[check, node] = now_s
    actions: list[Action] = []
    tripped = state.tripped
    if not tripped and (tripped := _over(since, fleet)):
        told = f"{tripped}. Nothing more is drained until a person has looked (more than {most(fleet)} of {fleet})"
        actions.append(Action(TELL, "", told))
    for result in sorted(fresh, key=lambda r: r.node):
        why = drained.get(result.node)
        if result.verdict == FAIL and why is None and not tripped:
            actions.append(Action(DRAIN, result.node, reason(result)))
        elif why is not None and why.startswith(PREFIX) and result.node not in state.tickets and _returns(result, why):
            actions.append(Action(UNDRAIN, result.node, why))
    silent = sorted(node for node, checks in failing.items() if SILENT in checks)
    if news := [node for node in silent if SILENT not in state.failing.get(node, frozenset())]:
        actions.append(Action(TELL, "", f"nothing is known of {fold(news)}: their health checks gave no verdict"))
    return Step(replace(state, failing={**state.failing, **failing}, since=since, tripped=tripped), tuple(actions))


def failed(result: Result) -> frozenset[str]:
    """The checks that a node failed; that it said nothing at all is one, too."""
    checks = frozenset(finding.check for finding in result.findings if finding.verdict == FAIL)
    return checks | {SILENT} if result.verdict == ERROR else checks


def newly(before: Collection[str], now: Collection[str]) -> list[str]:
    """What the breaker counts."""
    return sorted(set(now) - set(before) - {SILENT})


def _over(since: Mapping[tuple[str, str], int], fleet: int) -> str:
    """The checks that too many nodes newly fail; empty where there are none."""
    counts: dict[str, list[str]] = {}
    for check, node in since:
        counts.setdefault(check, []).append(node)
    return "; ".join(
        f"{check} newly fails on {len(nodes)} nodes within {WINDOW_S // 60} minutes: {fold(nodes)}"
        for check, nodes in sorted(counts.items())
        if len(nodes) > most(fleet)
    )


def _returns(result: Result, why: str) -> bool:
    """Everything passed, in another run than the one that the reason names."""
    return result.verdict in (PASS, WARN) and result.run[:RUN_LENGTH] != why.rpartition(" ")[2]


def chosen(actions: Iterable[Action], what: str) -> dict[str, str]:
    """Node -> reason, of the actions of one kind."""
    return {action.node: action.reason for action in actions if action.what == what}
