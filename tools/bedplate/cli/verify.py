"""`bedplate verify`: do nodes equal their locks?"""

from pathlib import Path

import click

from bedplate.cli.names import node_names
from bedplate.cli.output import json_option, print_json, print_table
from bedplate.decide.verification import FAIL, PASS, Verification
from bedplate.ledger.store import Ledger
from bedplate.model.event import Draft
from bedplate.model.faults import BadInput, DifferencesFound, NodesFailed
from bedplate.model.nodes import fold as fold_names
from bedplate.observe.running import running
from bedplate.observe.verify import verify as verify_nodes
from bedplate.sources.site import Site, open_site


@click.command()
@click.argument("environment", metavar="[ENV]", required=False)
@click.option("--nodes", metavar="NODESET", help="Host list; default: every node that an environment is for.")
@json_option
@click.pass_obj
def verify(root: Path, environment: str | None, nodes: str | None, as_json: bool) -> None:
    """Hold nodes against their lock, and record the verdicts.

    With pytest and testinfra, over ssh.
    Without ENV each node is held against the environment that the ledger says it runs.
    Exit code 5: a node differs; 4: a node did not answer, or nothing is known of it.

    \b
    Example:
      bedplate verify --nodes n[1-3]
    """
    site = open_site(root)
    site.refuse_example("verify nodes")
    asked, unknown = _asked(site, environment, nodes)
    if not asked and not unknown:
        raise BadInput(
            f"{site.fleet_path} has no node that {environment or 'an environment'} is for: nothing was verified"
        )
    found = verify_nodes(site, asked)
    with Ledger.open(site.ledger_url) as ledger:
        ledger.append(*(_draft(site, v) for v in found.values()))
    if as_json:
        print_json({"nodes": {v.node: v.body() for v in found.values()}, "never_seen": unknown})
    else:
        rows = [(v.node, v.environment, v.verdict, v.why) for v in found.values()]
        rows += [(node, "", "UNKNOWN", "the ledger has no environment for it") for node in unknown]
        print_table(["node", "environment", "verdict", "why"], rows)
    lost = [v.node for v in found.values() if v.verdict not in (PASS, FAIL)] + unknown
    differ = [v.node for v in found.values() if v.verdict == FAIL]
    if lost:
        raise NodesFailed(
            f"nothing is known of {fold_names(lost)}" + (f"; {fold_names(differ)} differ" if differ else "")
        )
    if differ:
        raise DifferencesFound(f"{fold_names(differ)}: not what the lock says")


def _draft(site: Site, found: Verification) -> Draft:
    subjects = (f"node:{found.node}", f"environment:{found.environment}")
    return Draft("node.verified", subjects, found.body(), site.lock(found.environment).identity)


def _asked(site: Site, environment: str | None, nodes: str | None) -> tuple[dict[str, str], list[str]]:
    """Node -> environment, and the nodes of which nothing is known."""
    covered = {kind for name in site.environment_names() for kind in site.environment(name).kinds}
    names = node_names(site, nodes) if nodes else [node.name for node in site.fleet.nodes_of(covered)]
    if environment:
        kinds = site.environment(environment).kinds
        wrong = [name for name in names if site.fleet.nodes[name].kind not in kinds]
        if nodes and wrong:
            raise BadInput(f"environment {environment} is not for {fold_names(wrong)}")
        return {name: environment for name in names if name not in wrong}, []
    runs = running(site)
    return {name: runs[name] for name in names if name in runs}, [name for name in names if name not in runs]
