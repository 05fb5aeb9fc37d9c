"""`bedplate power`: machines switched on, off, restarted, and booted from the network, through their BMCs."""

import dataclasses
from pathlib import Path
from typing import Any

import click

from bedplate.act.power import known_quiet, machines, many, section
from bedplate.cli.names import node_names
from bedplate.cli.output import json_option, print_json, print_table
from bedplate.cli.vault import vault_option
from bedplate.decide.power import SAYS, Action, Outcome, loud
from bedplate.ledger.store import Ledger
from bedplate.model.faults import BadInput, NodesFailed, Refused
from bedplate.model.nodes import fold as fold_names
from bedplate.sources.site import Site, open_site
from bedplate.sources.vault import bmc_logins

nodes_option = click.option("--nodes", metavar="NODESET", required=True, help="Host list; never a default.")
approved_option = click.option("--approved-by", metavar="NAME", default="", help="Who gave the word; recorded.")
yes_option = click.option("--yes", metavar="COUNT", type=int, help="Do not ask; COUNT is the number of nodes.")


@click.group()
def power() -> None:
    """Machines' power, through their BMCs: Redfish, or IPMI where fleet.yml says so."""


@power.command("status")
@nodes_option
@vault_option
@json_option
@click.pass_obj
def status_command(root: Path, nodes: str, vault_password_file: Path | None, *, as_json: bool) -> None:
    """Ask BMCs whether their machines are on, and whether they are the machines of nodes.csv.

    \b
    Example:
      bedplate power status --nodes gpu[001-020]
    """
    _do(root, Action.STATUS, nodes, vault_password_file, approved_by="", yes=None, as_json=as_json)


_CHANGES = {
    Action.ON: ("Switch machines on. One that is on stays as it is.", "--nodes gpu[001-020]"),
    Action.OFF: (
        "Switch machines off at once. Refused where the ledger does not know them as drained or being installed.",
        '--nodes gpu003 --approved-by "Ann Lee"',
    ),
    Action.CYCLE: (
        "Restart machines at once. Refused where the ledger does not know them as drained or being installed.",
        '--nodes gpu003 --approved-by "Ann Lee"',
    ),
    Action.NETBOOT: (
        "Restart machines at once, from the network this one time. What is not armed comes back from its own disk.",
        '--nodes gpu[001-020] --approved-by "Ann Lee"',
    ),
}


def _command(action: Action, what: str, example: str) -> None:
    """Add the command of an action that changes machines."""

    @power.command(action.value, help=f"{what}\n\n\b\nExample:\n  bedplate power {action} {example}")
    @nodes_option
    @approved_option
    @yes_option
    @vault_option
    @json_option
    @click.pass_obj
    def change(
        root: Path, nodes: str, approved_by: str, yes: int | None, vault_password_file: Path | None, *, as_json: bool
    ) -> None:
        _do(root, action, nodes, vault_password_file, approved_by=approved_by, yes=yes, as_json=as_json)


for _action, (_what, _example) in _CHANGES.items():
    _command(_action, _what, _example)


def _do(
    root: Path, action: Action, nodes: str, password_file: Path | None, *, approved_by: str, yes: int | None,
    as_json: bool,
) -> None:  # fmt: skip
    site = open_site(root)
    site.refuse_example(f"power {action}")
    section(site)
    names = node_names(site, nodes)
    bmcs = machines(site, names, bmc_logins(site.root, password_file))
    if action is Action.STATUS:
        _tell(list(many(site, None, bmcs, action, approved_by="", known={})), as_json=as_json)
        return
    with Ledger.open(site.ledger_url) as ledger:
        known = known_quiet(ledger)
        if (unknown := loud(action, names, known)) and not approved_by.strip():
            raise Refused(
                f"power {action}: the ledger does not know that nothing runs on {fold_names(unknown)}: not drained, not"
                " being installed (drain them, or give the word: --approved-by NAME)"
            )
        _confirm(site, action, names, yes, err=as_json)
        found = list(many(site, ledger, bmcs, action, approved_by=approved_by.strip(), known=known))
    _tell(found, as_json=as_json)


def _confirm(site: Site, action: Action, names: list[str], yes: int | None, *, err: bool) -> None:
    """Say what will happen, and ask; --yes says the number, so that a script that means 3 nodes does not get 300."""
    if yes is not None and yes != len(names):
        raise BadInput(f"--yes {yes}: {fold_names(names)} are {len(names)} nodes")
    click.echo(f"{len(names)} nodes of {site.fleet.site} are {SAYS[action]}: {fold_names(names)}", err=err)
    if yes is None:
        click.confirm(f"power {action} {len(names)} nodes?", abort=True, err=err)


def _tell(found: list[Outcome], *, as_json: bool) -> None:
    found = sorted(found, key=lambda each: each.node)
    if as_json:
        print_json({each.node: _document(each) for each in found})
    else:
        rows = [
            (each.node, each.by, each.after, each.serial or "not told", each.firmware or "", each.result, each.why)
            for each in found
        ]
        print_table(["node", "by", "power", "serial", "firmware", "", "why"], rows)
    if bad := [each.node for each in found if not each.ok]:
        raise NodesFailed(f"{fold_names(bad)}: failed or refused")


def _document(outcome: Outcome) -> dict[str, Any]:
    return {key: value for key, value in dataclasses.asdict(outcome).items() if key != "node"}
