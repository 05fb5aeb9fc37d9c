"""`bedplate image place` and `bedplate image gc`: images on the disks of nodes."""

import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any

import click
from rich.console import Console
from rich.progress import BarColumn, DownloadColumn, Progress, TextColumn, TransferSpeedColumn

from bedplate.act import distribution
from bedplate.act.distribution import Caps, Collected, Move, Options, Row
from bedplate.act.distribution.fanout import Watch
from bedplate.cli.names import node_names
from bedplate.cli.output import json_option, print_json, print_table
from bedplate.decide.distribution.engines import Engine
from bedplate.model.faults import BadInput, NodesFailed
from bedplate.sources.site import Site, open_site

MEGABYTE = 1_000_000


@click.command()
@click.argument("env")
@click.option("--nodes", metavar="NODESET", help="Only these, as in n[1-4]; else all that ENV is for.")
@click.option(
    "--engine",
    type=click.Choice([engine.value for engine in Engine]),
    default=Engine.AUTO.value,
    show_default=True,
    help="How it is moved; auto: a swarm of the nodes that have python3-libtorrent, the others over HTTP, else ssh.",
)
@click.option("--rate", type=click.IntRange(min=1), help="MB/s that a node takes and gives at most.")
@click.option("--source-rate", type=click.IntRange(min=1), help="MB/s that leave this controller at most.")
@click.option("--whole", is_flag=True, help="The whole file, also to nodes that could make it out of an earlier one.")
@click.option(
    "--width",
    type=click.IntRange(1, 64),
    default=distribution.WIDTH,
    show_default=True,
    help="Transfers at once over HTTP and ssh.",
)
@json_option
@click.pass_obj
def place(  # noqa: PLR0917  click's order
    root: Path,
    env: str,
    nodes: str | None,
    engine: str,
    rate: int | None,
    source_rate: int | None,
    whole: bool,
    width: int,
    as_json: bool,
) -> None:
    """Bring the squashfs of ENV to the disks of its nodes.

    What is there already stays; a node that has an earlier image gets what changed.
    The lock of ENV says which one; without a lock it is the one imported last. Exit 4 if a node does not have it.

    \b
    Example:
      bedplate image place A --nodes n[1-4]
      bedplate image place A --rate 200 --source-rate 1000
    """
    site = open_site(root)
    names = node_names(site, nodes) if nodes is not None else None
    options = Options(
        engine=Engine(engine),
        width=width,
        caps=Caps((rate or 0) * MEGABYTE, (source_rate or 0) * MEGABYTE),
        patches=not whole,
    )
    with _transfers() as (progress, report):
        placed = distribution.place(
            site, env, names, options=options, progress=progress, report=report, say=partial(click.echo, err=True)
        )
    if as_json:
        print_json({"nodes": [_row(row) for row in placed.rows], "moves": [_move(move) for move in placed.moves]})
    else:
        columns = ["node", "result", "seconds", "by", "why"]
        print_table(columns, [(r.node, r.result, r.seconds, _by(r), r.why) for r in placed.rows])
        for move in placed.moves:
            click.echo(_move_text(move))
    if failed := [row.node for row in placed.failed]:
        raise NodesFailed(f"{len(failed)} of {len(placed.rows)} nodes do not have the image: {', '.join(failed)}")


@click.command()
@click.argument("env", required=False)
@click.option("--nodes", metavar="NODESET", help="Only these, as in n[1-4]; else all nodes of ENV, or of the site.")
@click.option("--yes", is_flag=True, help="Remove; without it nothing is, and what would be is said.")
@json_option
@click.pass_obj
def gc(root: Path, env: str | None, nodes: str | None, yes: bool, as_json: bool) -> None:
    """Remove images from nodes that need them no more.

    A node keeps what it runs, what it ran before, what it is to run, what a lock or an import of the site says, what
    current.sqsh points to, and whatever a process, a loop device or a mount holds. Exit 4 if a node could not be asked.
    Without ENV and --nodes the site's mirror is looked at too: it keeps the images of build records, locks and nodes.

    \b
    Example:
      bedplate image gc
      bedplate image gc --nodes n[1-4] --yes
    """
    site = open_site(root)
    rows = distribution.collect(site, _collected_names(site, env, nodes), remove=yes)
    if env is None and nodes is None:
        rows.append(distribution.collect_mirror(site, remove=yes))
    if as_json:
        print_json([_collected(row) for row in rows])
    else:
        columns = ["node", "does", "bytes", "file", "why"]
        print_table(columns, [(r.node, f.does, f.size, f.name, f.why) for r in rows for f in r.files])
        for row in rows:
            if row.why:
                click.echo(f"{row.node}: {row.why}")
        if not yes and any(file.does == "would remove" for row in rows for file in row.files):
            click.echo("nothing was removed (--yes does)")
    if failed := [row.node for row in rows if row.why]:
        raise NodesFailed(f"{len(failed)} of {len(rows)} were not looked at: {', '.join(failed)}")


def _collected_names(site: Site, env: str | None, nodes: str | None) -> set[str] | None:
    if env is None and nodes is None:
        return None
    named = set(node_names(site, nodes)) if nodes is not None else None
    if env is None:
        return named
    of_env = {node.name for node in site.fleet.nodes_of(site.environment(env).kinds)}
    if named is not None and (others := named - of_env):
        raise BadInput(f"{', '.join(sorted(others))}: no node that environment {env} is for")
    return of_env if named is None else named


def _collected(row: Collected) -> dict[str, object]:
    files = [{"name": f.name, "size": f.size, "does": f.does, "why": f.why or None} for f in row.files]
    return {"node": row.node, "files": files, "freed": row.freed, "why": row.why or None}


def _row(row: Row) -> dict[str, object]:
    return {
        "node": row.node,
        "result": row.result,
        "seconds": row.seconds,
        "engine": row.engine,
        "patched": row.patched,
        "why": row.why or None,
    }


def _by(row: Row) -> str:
    return f"{row.engine or ''}{', patch' if row.patched else ''}"


def _move(move: Move) -> dict[str, object]:
    return {
        "engine": move.engine,
        "what": move.what,
        "size": move.size,
        "nodes": move.nodes,
        "source_bytes": move.source_bytes,
        "milliseconds": move.milliseconds,
        "crossed_permille": move.crossed_permille,
    }


def _move_text(move: Move) -> str:
    crossed = "" if move.crossed_permille is None else f", {move.crossed_permille / 10:.0f} % of the rest across racks"
    return (
        f"{move.what} of {move.size / MEGABYTE:.1f} MB to {move.nodes} nodes by {move.engine} in"
        f" {move.milliseconds / 1000:.1f} s; {move.source_bytes / MEGABYTE:.1f} MB left this controller,"
        f" {move.ratio:.2f} x its size{crossed}"
    )


@contextmanager
def _transfers() -> Iterator[tuple[Watch, Callable[[Row], None]]]:
    """What shows transfers on stderr: bars in a terminal, else a line when a node is done."""
    if not sys.stderr.isatty():
        yield (lambda _node, _sent, _size: None), _say_row
        return
    columns = (TextColumn("{task.description}"), BarColumn(), DownloadColumn(), TransferSpeedColumn())
    with Progress(*columns, console=Console(stderr=True), transient=True) as bars:
        tasks: dict[str, Any] = {}
        lock = threading.Lock()

        def progress(node: str, have: int, size: int) -> None:
            with lock:  # worker threads call this
                if node not in tasks:
                    tasks[node] = bars.add_task(node, total=size)
                bars.update(tasks[node], completed=have, total=size)

        def report(row: Row) -> None:
            with lock:
                if row.node in tasks:
                    bars.remove_task(tasks.pop(row.node))
            bars.console.print(_row_text(row), highlight=False)

        yield progress, report


def _say_row(row: Row) -> None:
    click.echo(_row_text(row), err=True)


def _row_text(row: Row) -> str:
    return f"{row.node}: {row.result}" + (f": {row.why}" if row.why else "")
