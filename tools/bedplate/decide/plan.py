"""Which nodes a rollout changes, in which batches: a function of fleet, states, target and policy.

Invariants
- A node that runs the target, verified, is in no batch (unless it is to be rechecked).
- Nodes in doubt come first, then failed and unreachable ones, then the canary, the small group, the rest.
- Every node that was asked for is in exactly one batch or named as left out, with the reason.
- Power domains take turns in the order, and in each its racks, so that neighbours meet in one batch as late as the
  fleet allows: a failed switch or feed must not look like a failed driver. A limit of the policy is kept by making
  the batch smaller.

Example: 8 fresh nodes, canary 1, small 2, batch 4 -> [1] [2] [4] [1].
"""

from collections import Counter
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass

from bedplate.decide.fold import NodeState, Status
from bedplate.model.fleet import Node
from bedplate.model.policy import Policy, nodes_of

CANARY_ORDER = ("reference", "spare", "training")  # who risks least when the first node breaks


@dataclass(frozen=True)
class Batch:
    """name: recovery, canary, small, rest. fresh: of a recovery, which of the others its fresh node stands for."""

    name: str
    nodes: tuple[str, ...]
    fresh: str = ""


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


def spread(nodes: Sequence[Node], power: Mapping[str, str] | None = None) -> list[str]:
    """One node of every power domain in turn, its racks in turn; those that may be risked first lead each turn.

    power: rack -> power domain; a rack that says none is a domain of its own.
    """
    racks: Counter[str] = Counter()
    by_rack = []  # one node of every rack in turn
    for node in sorted(nodes, key=lambda n: (_risk(n), n.name)):
        by_rack.append((racks[node.rack], _risk(node), node.rack, node.name))
        racks[node.rack] += 1
    domains: Counter[str] = Counter()
    keyed = []
    for turn, risk, rack, name in sorted(by_rack):
        domain = (power or {}).get(rack, f"rack {rack}")
        keyed.append((domains[domain], turn, risk, rack, name))
        domains[domain] += 1
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
    power: Mapping[str, str] | None = None,
) -> Plan:
    """Order nodes into batches for the environment with identity target; power: rack -> power domain."""
    unseen = NodeState()

    def of(*wanted: Status) -> list[Node]:
        return [node for node in nodes if states.get(node.name, unseen).status in wanted]

    done = [n.name for n in nodes if states.get(n.name, unseen).at_target(target) and not recheck]
    in_doubt = spread(of(Status.IN_DOUBT), power)
    bad = spread(of(Status.FAILED, Status.UNREACHABLE, Status.RESCUED), power)
    apart = {*done, *in_doubt, *bad}
    fresh = spread([node for node in nodes if node.name not in apart], power)
    again = [*in_doubt, *bad]
    largest = nodes_of(policy.batch, len(nodes))

    where = {node.name: (node.rack, (power or {}).get(node.rack)) for node in nodes}
    batches: list[Batch] = []
    kinds = _kinds(policy, len(nodes))
    while again:
        batch = _within(again, where, policy, largest)
        # Ansible ends a play whose whole batch failed, whatever the failure budget: one fresh node in the
        # batch keeps dead nodes, of which the budget allows a few, from blocking every later run.
        chosen = _within([*batch, *fresh], where, policy, len(batch) + 1)
        stands_for = next(kinds) if len(chosen) > len(batch) else ""
        batches.append(Batch("recovery", tuple(chosen), stands_for))
        again, fresh = _without(again, chosen), _without(fresh, chosen)
    for name, size in _sizes(policy, len(nodes), largest):
        if not fresh:
            break
        chosen = _within(fresh, where, policy, size)
        if chosen:
            batches.append(Batch(name, tuple(chosen)))
            fresh = _without(fresh, chosen)
    return Plan(tuple(batches), tuple(done), tuple(in_doubt), tuple(bad))


def _kinds(policy: Policy, total: int) -> Iterator[str]:
    """What each fresh node is that goes with bad ones, in turn: as many are canaries as a canary batch has."""
    for name, size in _sizes(policy, total, 1):
        yield from [name] * size


def _sizes(policy: Policy, total: int, largest: int) -> Iterator[tuple[str, int]]:
    """Names and sizes of the batches of fresh nodes, without end: canary, small group, then as the policy grows."""
    small = nodes_of(policy.small, total)
    yield "canary", nodes_of(policy.canary, total)
    yield "small", small
    size = max(1, small)
    while True:
        match policy.growth:
            case "linear":
                size = min(largest, size + max(1, small))
            case "exponential":
                size = min(largest, size * 2)
            case _:
                size = largest
        yield "rest", size


def _without(names: Sequence[str], chosen: Collection[str]) -> list[str]:
    gone = set(chosen)
    return [name for name in names if name not in gone]


def _within(order: Sequence[str], where: Mapping[str, tuple[str, str | None]], policy: Policy, size: int) -> list[str]:
    """The first nodes in an order that fill a batch and keep the policy's limits; where: node -> rack, power domain."""
    chosen: list[str] = []
    racks: Counter[str] = Counter()
    domains: Counter[str] = Counter()
    for name in order:
        if len(chosen) == size:
            break
        rack, domain = where[name]
        if policy.rack_limit and racks[rack] == policy.rack_limit:
            continue
        if policy.power_limit and domain and domains[domain] == policy.power_limit:
            continue
        chosen.append(name)
        racks[rack] += 1
        if domain:
            domains[domain] += 1
    return chosen
