"""What becomes of nodes that a rollout left behind, by the policy's word: what to do with which, and how to say it.

Until it is done a failed node stays as it is: drained, where its drain came before its fault, or its soak found it.
Whether it is, is said. Only a node that failed is worked on: one that does not answer cannot be, and one in doubt is
the business of the same rollout, which goes on with it.
"""

from collections.abc import Collection, Sequence
from dataclasses import dataclass

from bedplate.decide.fold import Status, World
from bedplate.decide.nodeswap import asked_environment
from bedplate.model.fleet import Fleet
from bedplate.model.nodes import fold
from bedplate.model.policy import Policy

LEAVE, ROLL_BACK, REPLACE = "leave", "rollback", "replace"
WORD = "--approved-by NAME --reason TEXT"


@dataclass(frozen=True)
class Step:
    """One thing to do. nodes: which failed; environment: of a rollback; spare: of a replacement; why: of leaving.

    drained: whether a rollout drained them and has not given them back.
    """

    do: str
    nodes: tuple[str, ...]
    environment: str = ""
    spare: str = ""
    why: str = ""
    drained: bool = True

    def __str__(self) -> str:
        if self.do == ROLL_BACK:
            return f"bedplate rollback {self.environment} --nodes '{fold(self.nodes)}'"
        if self.do == REPLACE:
            return f"bedplate node replace {self.nodes[0]} {self.spare} {WORD}"
        names, one = fold(self.nodes), len(self.nodes) == 1
        if self.drained:
            return f"{names} {'stays' if one else 'stay'} drained; {self.why}"
        drain = f"scontrol update nodename={names} state=drain reason=TEXT"
        return f"{names} {'is' if one else 'are'} NOT drained by this rollout (by hand: {drain}); {self.why}"


def next_steps(policy: Policy, world: World, fleet: Fleet, bad: Collection[str], spares: Sequence[str]) -> list[Step]:
    """What is to be done, in that order; spares: in the order in which they are to be taken."""
    names = sorted(bad)
    failed = [name for name in names if world.state(name).status in (Status.FAILED, Status.RESCUED)]
    steps: list[Step] = []
    if policy.failed_node == ROLL_BACK:
        steps = _back(world, failed)
    elif policy.failed_node == REPLACE:
        steps = _spares(world, fleet, failed, spares)
    else:
        failed = []
    left = [name for name in names if name not in failed]
    return steps + _leave(world, left, "the same command tries again, first of all")


def promise(policy: Policy, approved_by: str | None) -> str:
    """What the plan says of it, before anybody says yes."""
    if policy.failed_node == ROLL_BACK:
        return "a node that fails is rolled back to what it ran, when the rollout has ended"
    if policy.failed_node == REPLACE:
        return "a node that fails is replaced by a spare, when the rollout has ended" + (
            f", on the word of {approved_by}"
            if approved_by
            else ": by hand, without --approved-by NAME it is only named"
        )
    return "a node that fails stays drained"


def _leave(world: World, names: Sequence[str], why: str) -> list[Step]:
    apart = {word: tuple(name for name in names if world.state(name).drained is word) for word in (True, False)}
    return [Step(LEAVE, those, why=why, drained=word) for word, those in apart.items() if those]


def _back(world: World, names: Sequence[str]) -> list[Step]:
    to: dict[str, list[str]] = {}
    unknown = []
    for name in names:
        state = world.state(name)
        ran = world.before.get(name, state).runs  # before the batch: one that fails after its soak runs the target
        if ran in world.names and ran != state.target:
            to.setdefault(world.names[str(ran)], []).append(name)
        else:
            unknown.append(name)
    steps = [Step(ROLL_BACK, tuple(nodes), environment) for environment, nodes in to.items()]
    return steps + _leave(world, unknown, "no other environment was there before: nothing to roll back to")


def _spares(world: World, fleet: Fleet, names: Sequence[str], spares: Sequence[str]) -> list[Step]:
    steps, without, left = [], [], [name for name in spares if name not in names]
    for node in names:
        wanted = asked_environment(fleet, world, node)
        fitting = [name for name in left if fleet.nodes[name].kind == fleet.nodes[node].kind]
        spare = next((name for name in fitting if wanted and world.state(name).at_target(wanted)), None)
        if node in spares or spare is None:
            without.append(node)
            continue
        left.remove(spare)
        steps.append(Step(REPLACE, (node,), spare=spare))
    return steps + _leave(world, without, "no spare is left that runs what the neighbours run")
