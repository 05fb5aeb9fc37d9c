"""`bedplate handover`: what runs where, of which bytes, and how to make it again."""

import json
from dataclasses import asdict
from pathlib import Path

import click

from bedplate.act.handover import gathered, verifications
from bedplate.cli.names import node_names
from bedplate.cli.output import json_option, print_json
from bedplate.decide.attestation import bill_of_materials, statements
from bedplate.decide.document import html, markdown
from bedplate.decide.handover import sections
from bedplate.decide.handoverrecord import Record, Seen
from bedplate.ledger.store import Ledger
from bedplate.model.faults import BadInput
from bedplate.observe import factbook
from bedplate.sources.files import write_whole
from bedplate.sources.site import Site, open_site

FORMS = ("markdown", "html", "in-toto", "cyclonedx")


@click.command
@click.option("--nodes", metavar="NODESET", help="Only these nodes; default: every node of the fleet.")
@click.option("--as", "form", type=click.Choice(FORMS), default="markdown", show_default=True, help="In which form.")
@click.option("--output", metavar="FILE", type=click.Path(path_type=Path, dir_okay=False), help="Write it to a file.")
@json_option
@click.pass_obj
def handover(root: Path, *, nodes: str | None, form: str, output: Path | None, as_json: bool) -> None:
    """Write down what a colleague needs to repeat the installation.

    Machines as they are, said they are, were installed and accepted. Environments by layer with every hash, how the
    image was made, files, the environment before, checkpoints; commands in order, with their inputs; the head of the
    ledger that proves it. A list of all that must be there says of each what says it, or NOT ON RECORD. From the ledger
    and the fleet alone. in-toto: one statement a line; cyclonedx: of one environment.

    \b
    Example:
      bedplate handover --output handover.md
      bedplate handover --nodes gpu[001-008] --as html --output handover.html
      bedplate handover --as cyclonedx > bom.json
    """
    site = open_site(root)
    names = node_names(site, nodes) if nodes else list(site.fleet.nodes)
    record = gathered(site, names, _seen(site, names))
    text = _text(site, record, form)
    if output is not None:
        write_whole(output, text)
    if as_json:
        parts = [asdict(part) for part in sections(record)]
        print_json({"site": site.fleet.site, "event": record.head[0], "sha256": record.head[1], "sections": parts})
    elif output is not None:
        click.echo(f"{output}: {len(names)} nodes, {len(record.locks)} environments, event {record.head[0]}")
    else:
        click.echo(text, nl=False)


def _seen(site: Site, names: list[str]) -> dict[str, Seen]:
    """What nodes said they are when they were asked last."""
    with Ledger.read(site.ledger_url) as book:
        entries = factbook.newest(book, names)
        said = factbook.read(book, entries)
    events = {name: entry.collected.id for name, entry in entries.items() if entry.collected is not None}
    return {name: Seen(events[name], facts) for name, facts in said.items()}


def _text(site: Site, record: Record, form: str) -> str:
    title = f"Handover of {site.fleet.site}"
    if form == "markdown":
        return markdown(title, sections(record))
    if form == "html":
        return html(title, sections(record))
    if form == "in-toto":
        seen = verifications(record)
        return "".join(
            json.dumps(one, sort_keys=True) + "\n" for lock in record.locks.values() for one in statements(lock, seen)
        )
    if len(record.locks) != 1:
        there = ", ".join(lock.name for lock in record.locks.values()) or "none"
        raise BadInput(f"--as cyclonedx: these nodes run several environments or none: {there} (choose with --nodes)")
    return json.dumps(bill_of_materials(next(iter(record.locks.values()))), indent=2, sort_keys=True) + "\n"
