"""`bedplate render netboot`: what machines are given that install themselves over the network."""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import click

from bedplate.cli.names import node_names
from bedplate.cli.output import json_option, print_json, print_table
from bedplate.decide.autoinstall.lint import lint
from bedplate.decide.netboot.recipe import COMMON_FILES, NODE_FILES, Recipe
from bedplate.model.canonical import identity, sha256
from bedplate.model.faults import BadInput, Fault
from bedplate.model.netboot import Secrets
from bedplate.model.nodes import fold as fold_names
from bedplate.sources import checkout
from bedplate.sources.site import Site, open_site, shown
from bedplate.sources.trees import write_tree
from bedplate.sources.vault import netboot_secrets

MANIFEST = "manifest.json"


@click.command("netboot")
@click.argument("environment", metavar="ENV")
@click.option("--nodes", metavar="NODESET", help="Host list; default: every node that the environment is for.")
@click.option("--out", type=click.Path(file_okay=False, path_type=Path), help="Write the files to DIR, whole or not.")
@click.option(
    "--vault-password-file",
    type=click.Path(dir_okay=False, exists=True, path_type=Path),
    help="Opens the site's vault.yml; default: as ansible-vault finds it.",
)
@json_option
@click.pass_obj
def render_netboot(
    root: Path,
    environment: str,
    nodes: str | None,
    out: Path | None,
    vault_password_file: Path | None,
    *,
    as_json: bool,
) -> None:
    """Render what installs nodes over the network, from a lock and the fleet.

    Seeds, GRUB and iPXE files per node; DHCP and boot menus of the boot server. Every file passes the lint, or
    nothing is written. Same input, same bytes; the one-time token is put in when a node is armed.

    \b
    Example:
      bedplate render netboot A --nodes gpu[001-020] --out /tmp/netboot
    """
    site = open_site(root)
    wanted = node_names(site, nodes) if nodes else None
    files, index = rendered(site, environment, wanted, netboot_secrets(site.root, vault_password_file))
    refuse_faulty(files)
    manifest = {name: sha256(data) for name, data in files.items()}
    digest = identity(manifest)
    if out:
        text = json.dumps({"files": manifest, "index": index, "sha256": digest}, indent=2, sort_keys=True) + "\n"
        write_tree(out, files | {MANIFEST: text.encode()}, mark=MANIFEST)
    if as_json:
        print_json({"files": manifest, "index": index, "sha256": digest})
        return
    print_table(
        ["nodes", "file", "sha256"],
        [
            (fold_names(index["nodes"]), f"{len(NODE_FILES)} files each", ""),
            *(("", name, manifest[name]) for name in COMMON_FILES),
        ],
    )
    click.echo(f"all of it: {digest}" + (f", written to {shown(out.absolute())}" if out else ""))


def rendered(
    site: Site, environment: str, wanted: list[str] | None, secrets: Secrets
) -> tuple[dict[str, bytes], dict[str, Any]]:
    """Every file by its path below the directory, and the index of the nodes.

    Raises:
        BadInput: something of it cannot be installed; every fault.
    """
    lock = site.lock(environment)
    models = {kind.model: site.model(kind.model) for kind in site.fleet.kinds.values()}
    key = _key(site, environment)
    recipe = Recipe(lock, site.fleet, models, key=key, secrets=secrets, sources=checkout.autoinstall())
    nodes = recipe.nodes(wanted)
    files = {name: text.encode() for name, text in recipe.common().items()}
    for node in nodes:
        files |= {f"nodes/{node.name}/{name}": text.encode() for name, text in recipe.files(node).items()}
    return files, recipe.index(nodes)


def refuse_faulty(files: Mapping[str, bytes]) -> None:
    """Hold our own files to the rules for everybody's.

    Raises:
        BadInput: every finding.
    """
    findings = [
        finding
        for name, data in files.items()
        if name.rpartition("/")[2] in NODE_FILES
        for finding in lint(data, name).findings
    ]
    if findings:
        raise BadInput(
            Fault(each.fault.file, each.fault.line, f"{each.fault.found} [{each.rule}]", each.fault.remedy)
            for each in findings
        )


def _key(site: Site, environment: str) -> bytes:
    path = site.key_path(site.environment(environment).archive.key)
    try:
        return path.read_bytes()
    except OSError as fault:
        raise BadInput([Fault(shown(path), None, f"cannot be read: {fault.strerror}", "the archive's key")]) from fault
