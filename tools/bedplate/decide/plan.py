"""Which nodes a rollout changes, in which batches: a function of fleet, states, target and policy.

Invariants
- A node that runs the target, verified, is in no batch (unless it is to be rechecked).
- Nodes in doubt come first, then failed and unreachable ones, then the canary, the small group, the rest.
- Every node that was asked for is in exactly one batch or named as left out, with the reason.
- Racks take turns in the order, so that rack mates meet in one batch as late as racks allow: a failed
  switch must not look like a failed driver.

Example: 8 fresh nodes, canary 1, small 2, batch 4 -> [1] [2] [4] [1].
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from bedplate.decide.fold import NodeState, Status
from bedplate.model.environment import Policy
from bedplate.model.fleet import Node

CANARY_ORDER = ("reference", "spare", "training")  # who risks least when the first node breaks


@dataclass(frozen=True)
class Batch:
    name: str  # recovery, canary, small, rest
    nodes: tuple[str, ...]


@dataclass(frozen=True)
class Plan:
    """The batches, in order; at_target: nodes that run the target already; again: nodes in doubt or bad before."""

    batches: tuple[Batch, ...]
    at_target: tuple[str, ...]
    in_doubt: tuple[str, ...]
    bad: tuple[str, ...]

    @property
    def nodes(self) -> list[str]:
        return [node for batch in self.batches for node in batch.nodes]

    @property
    def sizes(self) -> list[int]:
        return [len(batch.nodes) for batch in self.batches]

    def as_dict(self) -> dict[str, object]:
        return {
            "batches": [{"name": batch.name, "nodes": list(batch.nodes)} for batch in self.batches],
            "at_target": list(self.at_target),
            "in_doubt": list(self.in_doubt),
            "bad": list(self.bad),
        }


def spread(nodes: Sequence[Node]) -> list[str]:
    """One node of every rack in turn, those that may be risked first leading each turn."""
    seen: dict[str, int] = {}
    keyed = []
    for node in sorted(nodes, key=lambda n: (_risk(n), n.name)):
        keyed.append((seen.get(node.rack, 0), _risk(node), node.rack, node.name))
        seen[node.rack] = seen.get(node.rack, 0) + 1
    return [name for *_, name in sorted(keyed)]


def _risk(node: Node) -> int:
    return min(
        (CANARY_ORDER.index(group) for group in node.groups if group in CANARY_ORDER),
        default=len(CANARY_ORDER),
    )


def make_plan(
    nodes: Sequence[Node],
    states: Mapping[str, NodeState],
    target: str,
    policy: Policy,
    *,
    recheck: bool = False,
) -> Plan:
    """Order nodes into batches for the environment with identity target."""
    unseen = NodeState()

    def of(*wanted: Status) -> list[Node]:
        return [node for node in nodes if states.get(node.name, unseen).status in wanted]

    done = [n.name for n in nodes if states.get(n.name, unseen).at_target(target) and not recheck]
    in_doubt = spread(of(Status.IN_DOUBT))
    bad = spread(of(Status.FAILED, Status.UNREACHABLE, Status.RESCUED))
    apart = {*done, *in_doubt, *bad}
    fresh = spread([node for node in nodes if node.name not in apart])
    again = [*in_doubt, *bad]

    batches: list[Batch] = []
    while again:
        batch, again = again[: policy.batch], again[policy.batch :]
        # Ansible ends a play whose whole batch failed, whatever the failure budget: one fresh node in the
        # batch keeps dead nodes, of which the budget allows a few, from blocking every later run.
        batches.append(Batch("recovery", tuple(batch + fresh[:1])))
        fresh = fresh[1:]
    for name, size in (("canary", policy.canary), ("small", policy.small)):
        if fresh and size:
            batches.append(Batch(name, tuple(fresh[:size])))
            fresh = fresh[size:]
    while fresh:
        batches.append(Batch("rest", tuple(fresh[: policy.batch])))
        fresh = fresh[policy.batch :]
    return Plan(tuple(batches), tuple(done), tuple(in_doubt), tuple(bad))
