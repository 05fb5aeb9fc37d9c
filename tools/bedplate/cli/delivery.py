"""`bedplate delivery`: what was delivered, machine by machine and batch by batch, and who signed for it."""

from pathlib import Path

import click

from bedplate.act.delivery import keep, looked
from bedplate.cli.names import node_names
from bedplate.cli.netboot import folder_option
from bedplate.cli.output import json_option, print_json
from bedplate.decide.delivery import SIGNED, Machine, batches, machines, sections, summary
from bedplate.decide.document import html, markdown
from bedplate.ledger.store import Ledger
from bedplate.model.event import Draft
from bedplate.model.faults import BadInput, NodesFailed, Refused
from bedplate.model.nodes import fold
from bedplate.sources.files import write_whole
from bedplate.sources.site import Site, open_site

FORMS = ("markdown", "html")


@click.command()
@click.argument("environment", metavar="ENV")
@click.option("--nodes", metavar="NODESET", help="Host list; default: every node that the environment is for.")
@click.option(
    "--out", metavar="FILE", type=click.Path(path_type=Path, dir_okay=False), help="Write the document there."
)
@click.option(
    "--as",
    "form",
    type=click.Choice(FORMS),
    help="In which form; default: html for a FILE that ends so, else markdown.",
)
@click.option("--keep-logs", is_flag=True, help="First copy the logs that are here to the ledger's files; recorded.")
@folder_option
@click.option("--sign-off", "signed_by", metavar="NAME", help="Who accepts the delivery of these nodes; recorded.")
@click.option("--remark", metavar="TEXT", help="What the signature says; needed where something is missing.")
@json_option
@click.pass_obj
def delivery(
    root: Path, *, environment: str, nodes: str | None, out: Path | None, form: str | None, keep_logs: bool,
    folder: Path, signed_by: str | None, remark: str | None, as_json: bool,
) -> None:  # fmt: skip
    """Report what was delivered: installation, steps, verification, vendor's list, acceptance, logs, signature.

    For each machine and each batch, by what the ledger says; what no event says is "not recorded". A log is there
    where its bytes have the recorded hash: in the ledger's files, in the site, on this boot server (--dir).
    A signature for machines that are not complete needs --remark, which stands in the report from then on.
    Exit code 4: a machine is not complete.

    \b
    Examples:
      bedplate delivery 2026.11-b --keep-logs --out delivery.html
      bedplate delivery 2026.11-b --nodes gpu[001-064] --sign-off "M. Weber" --remark "without gpu017, in repair"
    """
    site = open_site(root)
    lock = site.lock(environment)
    covered = [node.name for node in site.fleet.nodes_of(site.environment(environment).kinds)]
    names = [name for name in (node_names(site, nodes) if nodes else covered) if name in set(covered)]
    if not names:
        raise BadInput(f"{nodes}: no node that environment {environment} is for")
    found = _machines(site, names, lock.identity, folder)
    if keep_logs:
        site.refuse_example("keep logs")
        count = keep(site, folder, found, environment, lock.identity)
        click.echo(f"{count} logs kept", err=True)
        found = _machines(site, names, lock.identity, folder)
    incomplete = [machine.node for machine in found if machine.missing]
    if signed_by:
        site.refuse_example("sign for nodes")
        if incomplete and not remark:
            raise Refused(f"{fold(incomplete)} are not complete: a signature for them needs --remark TEXT")
        body = {"signed_by": signed_by, "remark": remark or "complete", "incomplete": incomplete}
        subjects = (f"environment:{environment}", *(f"node:{name}" for name in names))
        with Ledger.open(site.ledger_url) as ledger:
            ledger.append(Draft(SIGNED, subjects, body, lock.identity))
        found = _machines(site, names, lock.identity, folder)
    write = html if (form or (out.suffix.lstrip(".") if out else "")) in ("html", "htm") else markdown
    document = write(f"Delivery of {environment}", sections(lock.identity, found))
    if out:
        write_whole(out, document.encode())
    if as_json:
        print_json({
            "environment": environment, "identity": lock.identity, "machines": [each.as_dict() for each in found],
            "batches": {where: summary(members) for where, members in batches(found).items()},
        })  # fmt: skip
    elif not out:
        click.echo(document, nl=False)
    if incomplete and not signed_by:
        raise NodesFailed(f"not complete: {fold(incomplete)}")


def _machines(site: Site, names: list[str], identity: str, folder: Path) -> list[Machine]:
    with Ledger.read(site.ledger_url) as ledger:
        found = machines(ledger.events(), {name: site.fleet.nodes[name].serial for name in names}, identity)
    return looked(site, folder, [found[name] for name in names])
