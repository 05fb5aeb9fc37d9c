"""What is to be done with nodes that a rollout left behind, by the policy's word: the commands, ready to paste."""

from collections.abc import Collection, Sequence

from bedplate.decide.fold import BAD, World
from bedplate.model.nodes import fold
from bedplate.model.policy import Policy

WORD = "--approved-by NAME --reason TEXT"


def next_steps(policy: Policy, world: World, bad: Collection[str], spares: Sequence[str], target: str) -> list[str]:
    """A line for each thing to do; spares: in the order in which they are to be taken; target: an identity.

    Whatever the policy says, a failed node stays drained until then: nothing is done to it on its own.
    """
    if not bad:
        return []
    names = sorted(bad)
    if policy.failed_node == "rollback":
        return _back(world, names)
    if policy.failed_node == "replace":
        free = [name for name in spares if name not in bad and world.state(name).at_target(target)]
        lines = [f"bedplate node replace {node} {spare} {WORD}" for node, spare in zip(names, free, strict=False)]
        without = names[len(free) :]
        return lines + [f"no spare that runs the target is left for {fold(without)}"] * bool(without)
    return [f"{fold(names)} stay drained; the same command tries them again, first of all"]


def _back(world: World, names: Sequence[str]) -> list[str]:
    to: dict[str, list[str]] = {}
    unknown = []
    for name in names:
        state = world.state(name)
        earlier = state.runs if state.status in BAD and state.target != state.runs else state.previous
        if earlier and earlier in world.names:
            to.setdefault(world.names[earlier], []).append(name)
        else:
            unknown.append(name)
    lines = [f"bedplate rollback {environment} --nodes '{fold(nodes)}'" for environment, nodes in to.items()]
    return lines + [f"{fold(unknown)} ran no environment before: nothing to roll back to"] * bool(unknown)
