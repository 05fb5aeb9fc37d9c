"""`bedplate render`: the configuration files of nodes, as a rollout would write them."""

import json
from pathlib import Path

import click

from bedplate.cli.names import node_names, refuse_others
from bedplate.cli.netboot import render_dhcp, render_netboot
from bedplate.cli.output import json_option, print_json, print_table
from bedplate.decide.render import Rendering, manifest, manifest_sha256
from bedplate.model.nodes import fold as fold_names
from bedplate.sources import checkout
from bedplate.sources.files import write_whole
from bedplate.sources.site import open_site


class _Rendered(click.Group):
    """`render ENV` stands for `render files ENV`."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        if args and args[0] not in {*self.commands, "-h", "--help"}:
            args = ["files", *args]
        return super().parse_args(ctx, args)


@click.group(cls=_Rendered)
def render() -> None:
    """Files of nodes, from a lock and the fleet."""


@render.command("files")
@click.argument("environment", metavar="ENV")
@click.option("--nodes", metavar="NODESET", help="Host list; default: every node that the environment is for.")
@click.option("--output", type=click.Path(file_okay=False, path_type=Path), help="Write the files to DIR/NODE/PATH.")
@json_option
@click.pass_obj
def render_files(root: Path, environment: str, nodes: str | None, output: Path | None, as_json: bool) -> None:
    """Render the files that nodes get, from a lock and the fleet.

    Same input, same bytes. The word `files` may be left out.

    \b
    Example:
      bedplate render files A --nodes n1 --output /tmp/rendered
    """
    site = open_site(root)
    lock = site.lock(environment)
    rendering = Rendering(lock, checkout.roles(), site.surroundings)
    wanted = node_names(site, nodes) if nodes else None
    refuse_others(site, wanted or [], environment, lock.kinds)
    chosen = [n for n in site.fleet.nodes_of(lock.kinds) if wanted is None or n.name in wanted]
    result = {}
    by_manifest: dict[str, list[str]] = {}
    for node in chosen:
        files = rendering.files(node)
        result[node.name] = {"manifest_sha256": manifest_sha256(files), "files": manifest(files)}
        by_manifest.setdefault(manifest_sha256(files), []).append(node.name)
        if output:
            for file in files:
                place = output / node.name / file.path.lstrip("/")
                place.parent.mkdir(parents=True, exist_ok=True)
                write_whole(place, file.data, mode=int(file.mode, 8))
            write_whole(
                output / node.name / "manifest.json", json.dumps(result[node.name], indent=2, sort_keys=True) + "\n"
            )
    if as_json:
        print_json({"environment": lock.name, "identity": lock.identity, "nodes": result})
        return
    print_table(
        ["nodes", "files", "manifest"],
        [(fold_names(names), len(result[names[0]]["files"]), digest) for digest, names in by_manifest.items()],
    )


render.add_command(render_netboot)
render.add_command(render_dhcp)
