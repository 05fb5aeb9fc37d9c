"""`bedplate ledger checkpoint`: which environment and image made a checkpoint, and who reads it."""

from pathlib import Path

import click

from bedplate.act.lock import RESOLVED
from bedplate.act.lock import find as find_lock
from bedplate.cli.names import node_names
from bedplate.cli.output import json_option, print_json
from bedplate.decide.ledgerquestions import MADE, VERDICTS, image_of, not_running, of_checkpoint
from bedplate.ledger import projection, story
from bedplate.ledger.store import Ledger
from bedplate.model.event import Draft
from bedplate.model.faults import BadInput, Refused
from bedplate.sources.checkpoint import inspect
from bedplate.sources.site import Site, open_site


@click.command
@click.argument("checkpoint", metavar="PATH|FINGERPRINT")
@click.option("--made-by", "env", metavar="ENV", help="Record that a run in this environment wrote it.")
@click.option("--nodes", metavar="NODESET", help="With --made-by: the nodes of that run; they must run ENV.")
@json_option
@click.pass_obj
def checkpoint(root: Path, checkpoint: str, *, env: str | None, nodes: str | None, as_json: bool) -> None:
    """Say which environment and image made a checkpoint, and which environments read it.

    What nobody recorded is not guessed. --made-by records it, where the ledger agrees that the nodes run ENV.

    \b
    Example:
      bedplate ledger checkpoint /data/run7/iter_0001000 --made-by A --nodes gpu[001-008]
      bedplate ledger checkpoint /data/run7/iter_0001000
    """
    site = open_site(root)
    if env is not None:
        _record(site, checkpoint, env, nodes)
    with Ledger.read(site.ledger_url) as book:
        about = of_checkpoint(book.events(kinds=[MADE, *VERDICTS]), checkpoint)
        locks = {event.environment: event for event in book.events(kinds=[RESOLVED])}
    makers = [
        {
            "event": one.id, "environment": one.body["environment"], "identity": one.environment,
            "nodes": one.body["nodes"], "image": image_of(locks.get(one.environment)),
        }
        for one in about
        if one.kind == MADE
    ]  # fmt: skip
    verdicts = [
        {"event": one.id, "verdict": one.kind.partition(".")[2], "environment": one.body.get("environment")}
        for one in about
        if one.kind != MADE
    ]
    if as_json:
        print_json({"checkpoint": checkpoint, "made_by": makers, "verdicts": verdicts})
        return
    if not makers:
        click.echo("which environment made it is not on record (bedplate ledger checkpoint PATH --made-by ENV)")
    for made in makers:
        click.echo(f"event {made['event']}: made by {made['environment']} {made['identity']} on {made['nodes'] or '?'}")
        image = made["image"]
        click.echo("  no image" if not image else f"  image {image['reference']}, squashfs {image['squashfs_sha256']}")
    for said in verdicts:
        click.echo(f"event {said['event']}: {said['verdict']} by {said['environment']}")


def _record(site: Site, said: str, env: str, nodes: str | None) -> None:
    lock, names = find_lock(site, env), node_names(site, nodes) if nodes else []
    found = inspect(Path(said).absolute())
    if found.fingerprint is None:
        raise BadInput(f"{said}: is no checkpoint that can be recorded: {'; '.join(map(str, found.faults)) or 'empty'}")
    with Ledger.open(site.ledger_url) as book:
        world = projection.world(book)
        if other := not_running(names, {name: world.state(name).runs for name in names}, lock.identity):
            raise Refused(f"{story.folded(other)}: by the ledger these do not run {lock.name} {lock.identity[:19]}")
        body = {
            "checkpoint": found.path, "fingerprint": found.fingerprint, "environment": lock.name,
            "nodes": story.folded(names) if names else "",
        }  # fmt: skip
        about = (f"checkpoint:{story.printable(found.path, 4096)}", f"environment:{lock.name}")
        book.append(Draft(MADE, (*about, *(f"node:{name}" for name in names)), body, lock.identity))
