"""`bedplate ledger anchor` and `restored`: the ledger's head, signed and kept where its writer cannot reach."""

from dataclasses import asdict
from pathlib import Path

import click

from bedplate.act import anchor as anchors
from bedplate.cli.output import json_option, print_json
from bedplate.model.faults import BedplateError
from bedplate.sources.site import open_site


@click.command
@json_option
@click.pass_obj
def anchor(root: Path, *, as_json: bool) -> int:
    """Sign the head of the ledger, and give it to every place of ledger.yml.

    What was anchored cannot be cut off, rewritten or replaced by an old copy unseen. Nothing is done where nothing is
    new, so it can run from a timer. Exit code 1 when a place did not take it: the same command tries again.

    \b
    Example:
      bedplate ledger anchor
    """
    done = anchors.anchor_now(open_site(root))
    if as_json:
        print_json({
            "anchor": None if done.anchor is None else asdict(done.anchor), "took": list(done.took),
            "failed": list(done.failed),
        })  # fmt: skip
    elif done.anchor is None:
        click.echo("nothing new: every place has the head")
    else:
        for place in done.took:
            click.echo(f"event {done.anchor.id} {done.anchor.sha256}, signed by {done.anchor.principal}: at {place}")
        for why in done.failed:
            click.echo(why, err=True)
    return BedplateError.exit_code if done.failed else 0


@click.command
@click.option("--approved-by", metavar="NAME", required=True, help="Who answers for the loss.")
@click.option("--reason", metavar="TEXT", required=True, help="What happened.")
@json_option
@click.pass_obj
def restored(root: Path, *, approved_by: str, reason: str, as_json: bool) -> None:
    """Record that a copy of the ledger was restored, and that what came after it is lost.

    From then on the anchors of lost events are no damage; `verify` goes on naming the loss. Afterwards look at the
    nodes that were changed meanwhile: bedplate verify.

    \b
    Example:
      bedplate ledger restored --approved-by maria --reason "disk of ctl1 died, copy of Tuesday"
    """
    event = anchors.restored(open_site(root), approved_by=approved_by, reason=reason)
    if as_json:
        print_json({"event": event.id, "lost": event.body["lost"]})
    else:
        click.echo(f"event {event.id}: {len(event.body['lost'])} anchors name events that are lost")
