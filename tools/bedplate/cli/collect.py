"""`bedplate collect`: asks nodes what they are, and records it."""

import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import click
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

from bedplate.cli.hostkeys import refuse_missing
from bedplate.cli.names import node_names
from bedplate.cli.output import json_option, print_json, print_table
from bedplate.ledger.store import Ledger
from bedplate.model.event import Event
from bedplate.model.facts import Facts, Kernel, Nvidia, Unknown
from bedplate.model.faults import BadInput, NodesFailed
from bedplate.model.nodes import fold
from bedplate.observe import factbook
from bedplate.observe.collect import TIMEOUT_S, WIDTH, Collected
from bedplate.observe.collect import collect as ask
from bedplate.sources.site import Site, open_site

width_option = click.option(
    "--width", type=click.IntRange(1, 2000), default=WIDTH, show_default=True, help="Nodes asked at once."
)
timeout_option = click.option(
    "--timeout", "timeout_s", type=click.FloatRange(1, 86400), default=TIMEOUT_S, show_default=True,
    help="Seconds for a node, its login included.",
)  # fmt: skip
images_option = click.option(
    "--hash-images", is_flag=True, help="Hash the image files as well: a minute of disk for 25 GB."
)


@click.command()
@click.argument("nodes", metavar="[NODESET]", required=False)
@width_option
@timeout_option
@images_option
@json_option
@click.pass_obj
def collect(root: Path, *, nodes: str | None, width: int, timeout_s: float, hash_images: bool, as_json: bool) -> None:
    """Ask nodes what they are now, and record it.

    Packages, holds, kernel, modules, files' hashes, units, images: one remote command a node, which changes nothing
    and sends no file's contents. NODESET: default every node of the fleet. `bedplate drift` compares what was said.
    Exit code 4: a node did not answer.

    \b
    Examples:
      bedplate collect
      bedplate collect n[1-3] --hash-images
    """
    site = open_site(root)
    names = node_names(site, nodes, said="NODESET") if nodes else list(site.fleet.nodes)
    found, events = gather(site, names, width=width, timeout_s=timeout_s, hash_images=hash_images)
    if as_json:
        print_json({"nodes": {one.node: _document(one, events[one.node]) for one in found}})
    else:
        print_table(["nodes", "facts", "packages", "kernel", "driver", "not known"], _rows(found, events))
    lost = [one.node for one in found if one.facts is None]
    if lost:
        raise NodesFailed(f"{fold(lost)}: no facts")


def gather(
    site: Site, names: Sequence[str], *, width: int, timeout_s: float, hash_images: bool
) -> tuple[list[Collected], dict[str, Event]]:
    """Ask nodes and record what came of each, also of those that answered before an interrupt.

    Raises:
        BadInput: there is nobody to ask, or the site has no host keys to know them by.
    """
    if not names:
        raise BadInput("no nodes: nothing to collect")
    site.refuse_example("collect facts")
    refuse_missing(site)
    found: list[Collected] = []
    events: dict[str, Event] = {}
    # Opened first: a ledger that cannot be written is no reason to ask 660 nodes.
    with Ledger.open(site.ledger_url) as ledger:
        try:
            with _progress(len(names)) as seen:

                def report(one: Collected) -> None:
                    found.append(one)
                    seen(one)

                ask(site, names, width=width, timeout_s=timeout_s, hash_images=hash_images, report=report)
        finally:
            if found:
                events = factbook.record(ledger, found)
    order = {name: position for position, name in enumerate(names)}
    return sorted(found, key=lambda one: order[one.node]), events


@contextmanager
def _progress(total: int) -> Iterator[Callable[[Collected], None]]:
    """A bar on a terminal's stderr; elsewhere, a line for each node that gave no facts."""
    if not sys.stderr.isatty():
        yield lambda one: None if one.facts else click.echo(f"{one.node}: {one.why}", err=True)
        return
    columns = (TextColumn("asking nodes"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn())
    with Progress(*columns, console=Console(stderr=True), transient=True) as bar:
        task = bar.add_task("", total=total)

        def seen(one: Collected) -> None:
            bar.advance(task)
            if one.facts is None:
                bar.console.print(f"{one.node}: {one.why}", markup=False, highlight=False)

        yield seen


def _rows(found: Sequence[Collected], events: dict[str, Event]) -> list[tuple[str, ...]]:
    """Nodes that say the same in the columns are one row."""
    rows: dict[tuple[str, ...], list[str]] = {}
    for one in found:
        said = (_result(one, events[one.node]), *(_columns(one.facts) if one.facts else ("", "", "", one.why or "")))
        rows.setdefault(said, []).append(one.node)
    return [(fold(nodes), *said) for said, nodes in rows.items()]


def _result(one: Collected, event: Event) -> str:
    if one.facts is None:
        return "none"
    off = f", its clock is {one.clock_off_ms / 1000:+.0f} s off" if abs(one.clock_off_ms) >= 1000 else ""  # noqa: PLR2004
    return ("as before" if "same_as" in event.body else "recorded") + off


def _columns(facts: Facts) -> tuple[str, str, str, str]:
    packages = "?" if isinstance(facts.packages, Unknown) else str(sum(p.there for p in facts.packages))
    kernel = facts.kernel.release if isinstance(facts.kernel, Kernel) else "?"
    loaded = facts.nvidia.loaded if isinstance(facts.nvidia, Nvidia) else None
    driver = "?" if loaded is None or isinstance(loaded, Unknown) else getattr(loaded, "version", "-")
    return packages, kernel, driver, "; ".join(f"{part}: {why}" for part, why in facts.unknown().items())


def _document(one: Collected, event: Event) -> dict[str, Any]:
    if one.facts is None:
        return {"event": event.id, "why": one.why}
    return {
        "event": event.id, "facts": dict(one.facts.document), "facts_sha256": event.body["facts_sha256"],
        "same_as": event.body.get("same_as"), "unknown": one.facts.unknown(), "clock_off_ms": one.clock_off_ms,
    }  # fmt: skip
