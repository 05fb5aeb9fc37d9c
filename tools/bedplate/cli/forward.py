"""Refuses a rollback without a name that would go forward: to what nodes were rolled back from."""

from collections.abc import Iterator, Sequence
from pathlib import Path

from bedplate.decide.fold import World, rollout_number
from bedplate.ledger.projection import Projection, projection
from bedplate.ledger.store import Ledger
from bedplate.model.faults import Refused
from bedplate.model.nodes import fold as fold_names
from bedplate.sources.site import Site

PLAYBOOK = "rollback.yml"


def refuse_forward(site: Site, world: World, names: Sequence[str], to: str) -> None:
    """Refuse where a rollback brought one of the nodes to what it runs: no --yes stands for the name of where to go.

    to: the environment that most of them ran before it.

    Raises:
        Refused: there is such a node.
    """
    returned: dict[str, int] = {}
    with Ledger.read(site.ledger_url) as ledger, projection(ledger) as kept:
        for name in names:
            for number in _changes(world, ledger, kept, name):
                if _was_rollback(world, number):
                    returned[name] = number
    if returned:
        by = ", ".join(map(str, sorted(set(returned.values()))))
        raise Refused(
            f"rollback without ENV: {fold_names(returned)}: rolled back already (rollout {by}); what they ran"
            f" before that is {to}, and to go there is to go forward (if that is meant: bedplate rollout {to};"
            " to go further back, name it: bedplate rollback ENV)"
        )


def _changes(world: World, ledger: Ledger, kept: Projection, name: str) -> Iterator[int]:
    """The rollouts of a node's last change, and of the one that brought what it runs; often the same."""
    state = world.state(name)
    if state.rollout is not None:
        yield state.rollout
    came = 0
    for one in reversed(kept.changes(name)):
        if one.runs != state.runs:
            break
        came = one.event  # it ran nothing else since
    judged = ledger.event(came)
    number = rollout_number(judged.event) if judged and judged.event else None
    if number is not None:
        yield number


def _was_rollback(world: World, number: int) -> bool:
    """Whether a rollout was made with the playbook of rollbacks."""
    record = world.rollouts.get(number)
    command = record.body.get("command") if record else None
    return isinstance(command, list) and any(Path(str(word)).name == PLAYBOOK for word in command)
