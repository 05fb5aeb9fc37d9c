"""`bedplate status`: what the ledger knows of every node of the fleet."""

from pathlib import Path

import click

from bedplate.act import controllerlock
from bedplate.cli.names import node_names
from bedplate.cli.output import json_option, print_json, print_table
from bedplate.decide.fold import BAD, NodeState, Status, World
from bedplate.ledger.store import Ledger
from bedplate.model.nodes import fold
from bedplate.observe.running import world as read_world
from bedplate.sources.site import Site, open_site

SHORT = 19  # characters of an identity: sha256: and 12 digits
SECONDS = 19  # characters of a time, up to the seconds

WHY_SHOWN = 120  # characters of a reason; all of it: bedplate status --json


@click.command()
@click.option("--nodes", metavar="NODESET", help="Host list; default: every node of the fleet.")
@json_option
@click.pass_obj
def status(root: Path, nodes: str | None, as_json: bool) -> None:
    """Say what every node runs, and what is in doubt.

    Since when, when verified, what was tried last.
    Read from the ledger; nothing is asked of the nodes (that is `bedplate verify`).

    \b
    Example:
      bedplate status --nodes n[1-8]
    """
    site = open_site(root)
    world = read_world(site)
    names = node_names(site, nodes) if nodes else list(site.fleet.nodes)
    running = None if site.fleet.example else _running(site)
    unfinished = [r for r in world.rollouts.values() if r.ended is None]
    if as_json:
        print_json({
            "nodes": {name: _document(world, world.state(name)) for name in names}, "running": running,
            "unfinished_rollouts": [r.number for r in unfinished], "ledger_event": world.head,
        })  # fmt: skip
        return
    # A node of which nothing is known has nothing to say in a row of its own: of a new fleet that would be all.
    unseen = [name for name in names if world.state(name).status is Status.NEVER and world.state(name).rollout is None]
    if rows := [_row(site, world, name) for name in names if name not in unseen]:
        print_table(["node", "kind", "rack", "status", "runs", "verified at (UTC)", "last attempt"], rows)
    if unseen:
        click.echo(f"never seen: {fold(unseen)}")
    counts: dict[str, int] = {}
    for name in names:
        counts[str(world.state(name).status)] = counts.get(str(world.state(name).status), 0) + 1
    click.echo(f"{len(names)} nodes: " + ", ".join(f"{n} {word}" for word, n in counts.items()))
    for record in unfinished:
        word = (running or "").removeprefix(
            "another "
        ) or f"rollout {record.number} to {record.name} was not ended: its controller died; the same command goes on"
        click.echo(word)


def _running(site: Site) -> str | None:
    if here := controllerlock.holder(controllerlock.place(site)):
        return here
    with Ledger.read(site.ledger_url) as ledger:
        return controllerlock.elsewhere(ledger)


def _row(site: Site, world: World, name: str) -> tuple[str, ...]:
    node, state = site.fleet.nodes[name], world.state(name)
    last = ""
    if state.rollout is not None:
        target = world.names.get(state.target or "", state.target or "")
        why = " ".join((state.why or "").split())
        why = why if len(why) <= WHY_SHOWN else why[: WHY_SHOWN - 1] + "…"
        last = f"rollout {state.rollout} to {target}"
        if state.status in BAD and state.at:
            last += f", {state.status} since {state.at[:SECONDS].replace('T', ' ')}"
        last += f", at {state.step!r}: {why}" if why else ""
    runs = f"{world.names.get(state.runs, '?')} {state.runs[:SHORT]}" if state.runs else "-"
    verified = (state.verified_at or "-")[:SECONDS].replace("T", " ")
    return name, node.kind, node.rack, str(state.status), runs, verified, last


def _document(world: World, state: NodeState) -> dict[str, object]:
    return {
        "status": str(state.status), "runs": state.runs, "environment": world.names.get(state.runs or ""),
        "previous": state.previous, "target": state.target, "rollout": state.rollout, "step": state.step,
        "why": state.why, "at": state.at, "verified_at": state.verified_at, "facts": dict(state.facts),
        "manifest_sha256": state.manifest_sha256,
    }  # fmt: skip
