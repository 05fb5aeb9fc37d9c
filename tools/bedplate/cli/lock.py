"""`bedplate lock`: resolve an environment to exact bytes, and record it."""

from pathlib import Path

import click

from bedplate.act import checkpointmatrix, rules, sitefiles
from bedplate.act import lock as locks
from bedplate.cli.output import json_option, print_json
from bedplate.decide.diff import Difference, differences
from bedplate.decide.forecast import leaving
from bedplate.decide.lockdoc import LockDocument
from bedplate.observe.running import world as read_world
from bedplate.sources.site import Site, open_site, shown

SAID = {
    locks.Outcome.NEW: "locked",
    locks.Outcome.UNCHANGED: "unchanged: the ledger and the file have it",
    locks.Outcome.RECORDED: "unchanged: the file was there, the ledger has it now",
    locks.Outcome.RESTORED: "the file was missing or edited: written again as the ledger has it",
}


@click.command()
@click.argument("environment", metavar="ENV")
@json_option
@click.pass_obj
def lock(site_path: Path, environment: str, as_json: bool) -> None:
    """Find the exact bytes that ENV means, and record them.

    Packages of the archive, the image, the configuration.
    Writes environments/ENV.lock.json and records it in the ledger, or tells every fault and writes nothing. The files
    of the site that it was made from are kept with the ledger.
    What the ledger knows is never changed: a change is a new environment.

    \b
    Example:
      bedplate lock A
    """
    site = open_site(site_path)
    written = locks.write(site, locks.resolve(site, environment))
    holds, previous = written.lock, written.previous
    sitefiles.keep(site, holds)
    findings = rules.of_lock(site, site.environment(environment), holds)
    changes = differences(previous, holds) if previous else []
    doubts = _checkpoints(site, holds)
    counts = {kind: len(holds.packages(kind)) for kind in sorted(holds.kinds)}
    if as_json:
        print_json({
            "environment": holds.name, "identity": holds.identity, "outcome": written.outcome.value,
            "file": shown(written.path), "packages": counts,
            "image": holds.image.reference if holds.image else None,
            "rules": [finding.as_dict() for finding in findings], "checkpoints": doubts,
            "previous": previous.identity if previous else None, "changes": [as_dict(change) for change in changes],
        })  # fmt: skip
        return
    click.echo(f"{holds.name} {holds.identity}")
    click.echo(f"  {SAID[written.outcome]}: {shown(written.path)}")
    for line in (*findings, *doubts):
        click.echo(f"  {line}")
    for kind, count in counts.items():
        asked = sum(package.asked for package in holds.packages(kind).values())
        click.echo(f"  {kind}: {count} packages, {asked} asked for and {count - asked} that these need")
    click.echo(f"  image: {holds.image.reference if holds.image else 'unmanaged: ' + (holds.unmanaged('image') or '')}")
    if previous:
        click.echo(f"  the file held another lock before, {previous.identity}; changes:")
    for change in changes:
        click.echo(f"    {change.layer}: {said(change)}")


def _checkpoints(site: Site, lock: LockDocument) -> list[str]:
    """What is lost or not known of checkpoints if the nodes of its kinds leave for it what they run now."""
    world = read_world(site)
    runs = [world.state(node.name).runs for node in site.fleet.nodes_of(tuple(lock.kinds))]
    return checkpointmatrix.ways_back(site, lock, [world.names.get(old, old) for old in leaving(runs, lock.identity)])


def said(change: Difference) -> str:
    """One difference on one line."""
    return f"{change.item}: {change.old or '(none)'} -> {change.new or '(none)'}"


def as_dict(change: Difference) -> dict[str, str | None]:
    return {"layer": change.layer.value, "item": change.item, "old": change.old, "new": change.new}
