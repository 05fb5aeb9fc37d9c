"""What becomes of nodes that a rollout left behind, by the policy's word: what to do with which, and how to say it.

Until it is done a failed node stays drained; one that failed after it was given back (after a soak) nobody has drained,
and that is said. Only a node that failed is worked on: one that does not answer cannot be,
and one in doubt is the business of the same rollout, which goes on with it.
"""

from collections.abc import Collection, Sequence
from dataclasses import dataclass

from bedplate.decide.fold import VERIFICATION, Status, World
from bedplate.decide.nodeswap import asked_environment
from bedplate.model.fleet import Fleet
from bedplate.model.nodes import fold
from bedplate.model.policy import Policy

LEAVE, ROLL_BACK, REPLACE = "leave", "rollback", "replace"
WORD = "--approved-by NAME --reason TEXT"


@dataclass(frozen=True)
class Step:
    """One thing to do. nodes: which failed; environment: of a rollback; spare: of a replacement; why: of leaving.

    given_back: they failed after their return, so nothing keeps jobs from them.
    """

    do: str
    nodes: tuple[str, ...]
    environment: str = ""
    spare: str = ""
    why: str = ""
    given_back: bool = False

    def __str__(self) -> str:
        if self.do == ROLL_BACK:
            return f"bedplate rollback {self.environment} --nodes '{fold(self.nodes)}'"
        if self.do == REPLACE:
            return f"bedplate node replace {self.nodes[0]} {self.spare} {WORD}"
        names, one = fold(self.nodes), len(self.nodes) == 1
        if self.given_back:
            told = "was given back before it failed, and is" if one else "were given back before they failed, and are"
            drain = f"scontrol update nodename={names} state=drain reason=TEXT"
            return f"{names} {told} not drained for that ({drain}); {self.why}"
        return f"{names} {'stays' if one else 'stay'} drained; {self.why}"


def next_steps(policy: Policy, world: World, fleet: Fleet, bad: Collection[str], spares: Sequence[str]) -> list[Step]:
    """What is to be done, in that order; spares: in the order in which they are to be taken."""
    names = sorted(bad)
    failed = [name for name in names if world.state(name).status in (Status.FAILED, Status.RESCUED)]
    given_back = [name for name in names if world.state(name).step == VERIFICATION]
    steps: list[Step] = []
    if policy.failed_node == ROLL_BACK:
        failed = [name for name in failed if name not in given_back]
        steps = _back(world, failed)
    elif policy.failed_node == REPLACE:
        steps = _spares(world, fleet, failed, spares)
    else:
        failed = []
    left = [name for name in names if name not in failed]
    return (
        steps
        + _leave([name for name in left if name not in given_back])
        + _leave([name for name in left if name in given_back], given_back=True)
    )


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


def _leave(names: Sequence[str], *, given_back: bool = False) -> list[Step]:
    why = "the same command tries again, first of all"
    return [Step(LEAVE, tuple(names), why=why, given_back=given_back)] if names else []


def _back(world: World, names: Sequence[str]) -> list[Step]:
    to: dict[str, list[str]] = {}
    unknown = []
    for name in names:
        state = world.state(name)
        if state.runs in world.names and state.runs != state.target:
            to.setdefault(world.names[str(state.runs)], []).append(name)
        else:
            unknown.append(name)
    steps = [Step(ROLL_BACK, tuple(nodes), environment) for environment, nodes in to.items()]
    if unknown:
        steps.append(Step(LEAVE, tuple(unknown), why="no other environment was there before: nothing to roll back to"))
    return steps


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
    if without:
        steps.append(Step(LEAVE, tuple(without), why="no spare is left that runs what the neighbours run"))
    return steps
