"""`bedplate rollback --rehearse`: the way back, gone on a spare, and the way forth again."""

from collections.abc import Callable

import click

from bedplate.act.rollout import SPARES
from bedplate.cli.output import print_json
from bedplate.decide.equality import Return
from bedplate.decide.rehearsal import Rehearsal, spare_for
from bedplate.ledger.store import Ledger
from bedplate.model.faults import BedplateError, NodesFailed
from bedplate.observe.running import world as read_world
from bedplate.sources.site import Site

WHY_LIMIT = 2000  # characters

# Brings nodes to an environment by a playbook; the number of the rollout, and what each node is against before.
Go = Callable[[str, str, str], tuple[int | None, list[Return]]]


def rehearse(site: Site, target: str, asked: list[str], go: Go, *, as_json: bool) -> None:
    """Go there and back on one spare, whatever comes of it; record what came.

    Raises:
        NodesFailed: it did not get there, was not what it had been, or did not come back.
    """
    lock, world = site.lock(target), read_world(site)
    node, runs = spare_for(world, site.fleet.groups.get(SPARES, ()), asked, lock.identity)
    left = world.names[runs]
    if not as_json:
        click.echo(f"Rehearsal on {node}: {left} -> {target} -> {left}")
    numbers: list[int] = []
    back: Return | None = None
    reached, why = False, ""
    try:
        number, returns = go(target, "rollback", node)
        numbers += [number] if number is not None else []
        back = next((each for each in returns if each.node == node), None)
        reached = read_world(site).state(node).at_target(lock.identity)
    except BedplateError as fault:
        why = f"{target}: {fault}"[:WHY_LIMIT]
        if read_world(site).state(node) == world.state(node):
            raise  # refused before it was begun: nothing was tried, and nothing is recorded
    try:
        number, _ = go(left, "rollout", node)
        numbers += [number] if number is not None else []
    except BedplateError as fault:
        why = why or f"{left}: {fault}"[:WHY_LIMIT]
    after = read_world(site).state(node)
    found = Rehearsal(node, left, target, lock.identity, reached, back, after.at_target(runs), why)
    with Ledger.open(site.ledger_url) as ledger:
        (event,) = ledger.append(found.draft(numbers))
    if as_json:
        print_json({"node": node, "environment": target, "event": event.id, **dict(event.body)})
    else:
        word = "proven" if found.passed else "NOT proven"
        click.echo(f"way back to {target}: {word} on {node}, {event.at[:19]}Z, event {event.id}; {found.equal}")
    if not found.passed:
        raise NodesFailed(f"the rehearsal on {node} failed: {event.body['why']}")
