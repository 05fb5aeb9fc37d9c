"""What Slurm's controller does about verdicts: drain, undrain, or stop and call a person. Pure; one step a call.

- A node is drained for FAIL only. ERROR is no verdict: a person is told, no job is lost for it.
- Only a reason with our prefix is ever changed or taken away; a node that others drained stays as it is.
- A node returns when it passed everything, in a boot and a run after the one that drained it, and not before.
- The breaker: more than max(3, 2 % of the fleet) nodes that newly fail one check within ten minutes are no node
  faults but a bad rollout, limit or server. Nothing more is drained from then on, whatever the check, until a person
  has reset it. Drains that were decided in the step that trips it are not made either.

    state = Watch()
    step = decide(state, now_s=..., fleet=660, results=..., drained={"n7": "HC:gpu.count reboot"})
    for action in step.actions: ...
    state = step.state
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace

from bedplate.model.nodes import fold
from bedplate_agent.sinks import PREFIX, Result, reason
from bedplate_agent.verdict import ERROR, FAIL, PASS, WARN

WINDOW_S = 600
LEAST, PERCENT = 3, 2
FRESH_S = 900  # of a result: older ones decide nothing; the timer runs each five minutes
DRAIN, UNDRAIN, TELL = "drain", "undrain", "tell"


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
    runs: node -> the run that drained it; tripped: why nothing is drained any more.
    """

    failing: Mapping[str, frozenset[str]] = field(default_factory=dict)
    since: Mapping[tuple[str, str], int] = field(default_factory=dict)
    runs: Mapping[str, str] = field(default_factory=dict)
    tripped: str = ""

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
    state: Watch, *, now_s: int, fleet: int, results: Sequence[tuple[int, Result]], drained: Mapping[str, str]
) -> Step:
    """One step.

    results: (when it was reached, result), at most one a node; drained: node -> Slurm's reason, of all that are.
    """
    fresh = [result for at, result in results if now_s - at <= FRESH_S]
    failing = {result.node: _failed(result) for result in fresh}
    since = {key: at for key, at in state.since.items() if now_s - at <= WINDOW_S}
    for node, checks in failing.items():
        for check in checks - state.failing.get(node, frozenset()):
            since[check, node] = now_s
    counts: dict[str, list[str]] = {}
    for check, node in since:
        counts.setdefault(check, []).append(node)
    over = {check: nodes for check, nodes in sorted(counts.items()) if len(nodes) > most(fleet)}
    actions: list[Action] = []
    tripped = state.tripped
    if over and not tripped:
        tripped = "; ".join(
            f"{check} newly fails on {len(nodes)} nodes within {WINDOW_S // 60} minutes: {fold(nodes)}"
            for check, nodes in over.items()
        )
        told = f"{tripped}. Nothing more is drained until a person has looked (more than {most(fleet)} of {fleet})"
        actions.append(Action(TELL, "", told))
    runs = dict(state.runs)
    for result in sorted(fresh, key=lambda r: r.node):
        why = drained.get(result.node)
        if result.verdict == FAIL and why is None and not tripped:
            runs[result.node] = result.run
            actions.append(Action(DRAIN, result.node, reason(result)))
        elif why is not None and why.startswith(PREFIX) and _returns(result, runs.get(result.node, "")):
            runs.pop(result.node, None)
            actions.append(Action(UNDRAIN, result.node, why))
    silent = sorted(result.node for result in fresh if result.verdict == ERROR)
    before = {node for node, checks in state.failing.items() if SILENT in checks}
    if news := [node for node in silent if node not in before]:
        actions.append(Action(TELL, "", f"nothing is known of {fold(news)}: their health checks gave no verdict"))
    kept = {node: checks for node, checks in state.failing.items() if node not in failing}
    remembered = {**kept, **failing} | {node: failing[node] | {SILENT} for node in silent}
    return Step(Watch(remembered, since, runs, tripped), tuple(actions))


SILENT = "(no verdict)"


def _failed(result: Result) -> frozenset[str]:
    return frozenset(finding.check for finding in result.findings if finding.verdict == FAIL)


def _returns(result: Result, drained_in: str) -> bool:
    """Everything passed, in a later run than the one for which it was drained."""
    return result.verdict in (PASS, WARN) and result.run != drained_in


def undrained(actions: Iterable[Action]) -> list[str]:
    return [action.node for action in actions if action.what == UNDRAIN]
