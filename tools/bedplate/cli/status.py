"""`bedplate status`: what the ledger knows of every node of the fleet."""

from collections.abc import Mapping
from pathlib import Path

import click

from bedplate.act.controllerlock import Holder
from bedplate.cli.names import node_names
from bedplate.cli.output import json_option, print_json, print_table
from bedplate.cli.running import has_in_work, running
from bedplate.cli.whole import events_of, pointer
from bedplate.decide.brief import brief, on_one_line
from bedplate.decide.fold import BAD, VERIFICATION, NodeState, Status, World
from bedplate.ledger.store import Ledger
from bedplate.model.nodes import fold
from bedplate.observe.running import world as read_world
from bedplate.sources.site import Site, open_site

SHORT = 19  # characters of an identity: sha256: and 12 digits
SECONDS = 19  # characters of a time, up to the seconds

WHY_SHOWN = 120  # characters of a reason; where all of it is follows it


@click.command()
@click.option("--nodes", metavar="NODESET", help="Host list; default: every node of the fleet.")
@json_option
@click.pass_obj
def status(root: Path, nodes: str | None, as_json: bool) -> None:
    """Say what every node runs, and what is in doubt.

    Since when, when verified, what was tried last. A node that a running rollout has in hand is in work; one whose
    controller died is in doubt.
    Read from the ledger; nothing is asked of the nodes (that is `bedplate verify`).

    \b
    Example:
      bedplate status --nodes n[1-8]
    """
    site = open_site(root)
    world = read_world(site)
    names = node_names(site, nodes) if nodes else list(site.fleet.nodes)
    now = running(site)
    unfinished = [r for r in world.rollouts.values() if r.ended is None]
    if as_json:
        print_json({
            "nodes": {name: _document(world, world.state(name), now) for name in names},
            "running": now.said if now else None,
            "unfinished_rollouts": [r.number for r in unfinished], "ledger_event": world.head,
        })  # fmt: skip
        return
    # A node of which nothing is known has nothing to say in a row of its own: of a new fleet that would be all.
    unseen = [name for name in names if world.state(name).status is Status.NEVER and world.state(name).rollout is None]
    seen = [name for name in names if name not in unseen]
    whole = _whole(site, {name: world.state(name) for name in seen})
    if rows := [_row(site, world, name, now, whole) for name in seen]:
        print_table(["node", "kind", "rack", "status", "runs", "verified at (UTC)", "last attempt"], rows)
    if unseen:
        click.echo(f"never seen: {fold(unseen)}")
    counts: dict[str, int] = {}
    for name in names:
        word = _status(world.state(name), now)
        counts[word] = counts.get(word, 0) + 1
    click.echo(f"{len(names)} nodes: " + ", ".join(f"{n} {word}" for word, n in counts.items()))
    for record in unfinished:
        dead = f"rollout {record.number} to {record.name} was not ended: its controller died; the same command goes on"
        click.echo(now.said.removeprefix("another ") if now else dead)


def _whole(site: Site, states: Mapping[str, NodeState]) -> dict[str, int]:
    """Node -> the event that has all of why, for those of which a row cannot say all."""
    long = {
        name: state
        for name, state in states.items()
        if state.status in BAD and len(on_one_line(state.why or "")) > WHY_SHOWN
    }
    if not long:
        return {}
    with Ledger.read(site.ledger_url) as ledger:
        return events_of(ledger, long)


def _status(state: NodeState, now: Holder | None) -> str:
    if has_in_work(now, state):
        return "in work"
    # A bad node is expected to be drained; one that is well by now and still is, waits for a rollout to give it back.
    return str(state.status) + (", drained" if state.drained and state.status not in BAD else "")


def _row(site: Site, world: World, name: str, now: Holder | None, whole: Mapping[str, int]) -> tuple[str, ...]:
    node, state = site.fleet.nodes[name], world.state(name)
    runs = f"{world.names.get(state.runs, '?')} {state.runs[:SHORT]}" if state.runs else "-"
    verified = (state.verified_at or "-")[:SECONDS].replace("T", " ")
    return name, node.kind, node.rack, _status(state, now), runs, verified, _last(world, name, now, whole)


def _last(world: World, name: str, now: Holder | None, whole: Mapping[str, int]) -> str:
    """What was tried with a node last, and what was found since."""
    state = world.state(name)
    target = world.names.get(state.target or "", state.target or "")
    tried = "" if state.rollout is None else f"rollout {state.rollout} to {target}"
    why = brief(state.why or "", WHY_SHOWN) + pointer(whole.get(name))
    since = (state.at or "")[:SECONDS].replace("T", " ")
    if has_in_work(now, state):
        return f"in work in {tried}, since {since}" + (f", at {state.step!r}" if state.step else "")
    if state.status in BAD and state.step == VERIFICATION:
        # Its change had ended well: what failed in a change keeps the step at which it did, until it is tried again.
        record = world.rollouts.get(state.rollout or 0)
        over = record is not None and record.ended is not None and record.ended < (state.at or "")
        when = "after the rollout" if over else "after its change"
        found = f"a verification{f' {when},' if tried else ''} at {since}{',' if tried else ''} found it {state.status}"
        return (f"changed in {tried}; " if tried else "") + found + (f": {why}" if why else "")
    if state.status in BAD and state.at and tried:
        tried += f", {state.status} since {since}"
    return tried + (f", at {state.step!r}: {why}" if tried and why else "")


def _document(world: World, state: NodeState, now: Holder | None) -> dict[str, object]:
    return {
        "status": str(state.status), "in_work": has_in_work(now, state),
        "runs": state.runs, "environment": world.names.get(state.runs or ""),
        "previous": state.previous, "target": state.target, "rollout": state.rollout, "step": state.step,
        "why": state.why, "drained": state.drained, "at": state.at, "verified_at": state.verified_at,
        "facts": dict(state.facts), "manifest_sha256": state.manifest_sha256,
    }  # fmt: skip
