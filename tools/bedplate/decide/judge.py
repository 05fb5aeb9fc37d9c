"""Whether a batch may begin, or go on: the verdict of a gate.

Invariants
- A gate passes only while the bad nodes of the fleet are within the failure budget. Bad nodes that this
  rollout still has to retry do not count: counting them would block the run that mends them.
- Nodes of the batch itself count at every gate but the one that admits it.
- A bad canary stops the rollout whatever the budget.
- A batch of one node that was bad before goes, whatever the budget: so bad nodes are mended one at a time. A larger one
  does not: nodes that only failed a verification may still be serving.
So the nodes made bad by a rollout never exceed failure_budget + the batch in flight.
"""

from collections.abc import Mapping
from dataclasses import dataclass

from bedplate.decide.fold import BAD, NodeState, Status
from bedplate.decide.plan import Plan
from bedplate.model.nodes import fold as fold_names


@dataclass(frozen=True)
class Verdict:
    """The judgement of one batch at one gate; reason is empty when it may go."""

    batch: int
    nodes: tuple[str, ...]
    reason: str

    @property
    def go(self) -> bool:
        return not self.reason


def judge(plan: Plan, index: int, states: Mapping[str, NodeState], failure_budget: int, *, entering: bool) -> Verdict:
    """Judge batch number index (from 0) at its first gate (entering) or a later one."""
    batch = plan.batches[index]
    here = set(batch.nodes)
    later = {node for after in plan.batches[index + 1 :] for node in after.nodes}
    counted = {
        name: state.status
        for name, state in states.items()
        if state.status in BAD
        and name not in later
        and (name not in here or (not entering and state.status is not Status.IN_DOUBT))
    }
    canaries = {node for b in plan.batches[: index + (not entering)] if b.name == "canary" for node in b.nodes}
    lost = sorted(canaries & counted.keys())
    if lost:
        return Verdict(index, batch.nodes, f"canary {fold_names(lost)} is bad: {_why(states, lost)}")
    mends = len(here) == 1 and here <= {*plan.in_doubt, *plan.bad}
    if len(counted) > failure_budget and not mends:
        return Verdict(
            index, batch.nodes,
            f"{len(counted)} bad node{'s' if len(counted) != 1 else ''}, failure budget {failure_budget}: "
            f"{_why(states, sorted(counted))}",
        )  # fmt: skip
    return Verdict(index, batch.nodes, "")


def _why(states: Mapping[str, NodeState], names: list[str]) -> str:
    shown = [
        f"{name} {states[name].status}" + (f" at {states[name].step!r}" if states[name].step else "")
        for name in names[:20]
    ]
    return ", ".join(shown) + (f" and {len(names) - 20} more" if len(names) > 20 else "")  # noqa: PLR2004
