"""`bedplate health`: how are the nodes, and what is to be done about those that are not well?"""

import datetime
import json
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, nullcontext
from functools import partial
from pathlib import Path

import click
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

from bedplate import process
from bedplate.act import healthservice
from bedplate.act.healthservice import Looking, Service
from bedplate.act.slurm import slurm_of
from bedplate.cli.names import node_names
from bedplate.cli.output import json_option, print_json, print_table
from bedplate.decide.healthevents import drafts
from bedplate.decide.healthfleet import compared
from bedplate.filelock import alone
from bedplate.ledger.connection import path_of
from bedplate.ledger.store import Ledger
from bedplate.model.faults import BadInput, BedplateError, NodesFailed, Refused
from bedplate.model.nodes import fold
from bedplate.observe.agentfile import agent_sha256
from bedplate.observe.health import WIDTH, ask, new_run, replayed
from bedplate.observe.healthreports import OverSsh
from bedplate.observe.running import running
from bedplate.sources.files import write_whole
from bedplate.sources.site import open_site
from bedplate_agent.probe import CLASSES, PASSIVE
from bedplate_agent.sinks import Result, junit, lines, prometheus, rows
from bedplate_agent.verdict import ERROR, FAIL, SEVERITY

NOTIFY_S = 30.0


@click.group(invoke_without_command=True)
@click.option("--nodes", metavar="NODESET", help="Host list; default: every node of the fleet.")
@click.option(
    "--class", "classes", multiple=True, type=click.Choice(CLASSES),
    help="passive (default) and slow are safe beside jobs; idle and active want a node that Slurm keeps free.",
)  # fmt: skip
@click.option("--record", type=click.Path(path_type=Path), help="Write what every node said into this folder.")
@click.option("--replay", type=click.Path(path_type=Path), help="Judge a record instead; no node is asked.")
@click.option(
    "--since", type=click.DateTime(["%Y-%m-%dT%H:%M:%SZ", "%Y-%m-%dT%H:%MZ"]), metavar="TIME",
    help="UTC, like 2026-11-30T10:00Z: what kernels reported before was dealt with.",
)  # fmt: skip
@click.option("--all", "everything", is_flag=True, help="Show what passed, too.")
@click.option("--junit", "junit_file", type=click.Path(path_type=Path), help="Write JUnit XML.")
@click.option("--prometheus", "prometheus_file", type=click.Path(path_type=Path), help="Write metrics.")
@click.option("--width", type=click.IntRange(1, 2000), default=WIDTH, show_default=True, help="Nodes asked at once.")
@click.option("--timeout", "timeout_s", type=click.FloatRange(1, 86400), help="Seconds for a node, its login included.")
@json_option
@click.pass_context
def health(
    ctx: click.Context, *, nodes: str | None, classes: tuple[str, ...], record: Path | None, replay: Path | None,
    since: datetime.datetime | None, everything: bool, junit_file: Path | None, prometheus_file: Path | None,
    width: int, timeout_s: float | None, as_json: bool,
) -> None:  # fmt: skip
    """Ask nodes how they are, judge, and record it.

    One remote command a node; the program it runs comes with it, and stays in memory. A node that does not answer is
    a row, too. --json prints JSON lines: a finding each, worst first.
    Exit code 4: a node failed, or nothing is known of it.

    \b
    Examples:
      bedplate health
      bedplate health --nodes n[1-3] --all
      bedplate health --replay case-4711
    """
    if ctx.invoked_subcommand is not None:
        return
    root: Path = ctx.obj
    if replay is not None:
        if nodes or record or since:
            raise BadInput("--replay asks no node: leave --nodes, --record and --since out")
        results = replayed(replay, classes or None)
    else:
        results = _asked(root, nodes, classes or (PASSIVE,), record, width, timeout_s, since)
    for path, text in ((junit_file, junit(results)), (prometheus_file, prometheus(results, int(time.time())))):
        if path is not None:
            _write(path, text)
    if as_json:
        click.echo("".join(lines(result) for result in results), nl=False)
    else:
        _print(results, everything=everything)
    _refuse_bad(results)


def _asked(  # noqa: PLR0917
    root: Path,
    nodes: str | None,
    classes: Sequence[str],
    record: Path | None,
    width: int,
    timeout_s: float | None,
    since: datetime.datetime | None,
) -> list[Result]:
    site = open_site(root)
    names = node_names(site, nodes) if nodes else list(site.fleet.nodes)
    if not names:
        raise BadInput("no nodes: nobody to ask")
    site.refuse_example("ask nodes how they are")
    run = new_run()
    found: list[Result] = []
    # Opened first: a ledger that cannot be written is no reason to ask 660 nodes.
    with Ledger.open(site.ledger_url) as ledger:
        try:
            with _progress(len(names)) as seen:

                def report(result: Result) -> None:
                    found.append(result)
                    seen(result)

                ask(
                    site, names, run=run, classes=classes, width=width, timeout_s=timeout_s, record=record,
                    since_us=int(since.replace(tzinfo=datetime.UTC).timestamp()) * 1_000_000 if since else 0,
                    report=report,
                )  # fmt: skip
        finally:
            order = {name: position for position, name in enumerate(names)}
            results = sorted(compared(found), key=lambda result: order[result.node])
            if results:  # an interrupt loses nothing of what was said
                ledger.append(*drafts(results, run=run, classes=classes, agent_sha256=agent_sha256()))
    return results


@health.command()
@click.option(
    "--interval",
    "interval_s",
    type=click.FloatRange(1, 3600),
    default=60,
    show_default=True,
    help="Seconds from the end of a round to the next one.",
)
@click.option(
    "--once", is_flag=True, help="One round; exit code 3: the breaker has tripped; 4: somebody did not answer."
)
@click.option(
    "--notify",
    type=click.Path(exists=True, dir_okay=False, path_type=Path),
    metavar="PROGRAM",
    help="Gets on its stdin what a person must know: the breaker, silent nodes, a Slurm that is gone.",
)
@click.option("--dry-run", is_flag=True, help="Say what would be done; record nothing, and leave Slurm as it is.")
@json_option
@click.pass_obj
def service(
    root: Path, *, interval_s: float, once: bool, notify: Path | None, dry_run: bool, as_json: bool
) -> None:  # fmt: skip
    """Drain nodes that failed, return those that pass again, and stop when too many fail at once.

    Runs until it is ended, on the machine that has site and ledger. It reads what the nodes' own timers found, and
    asks Slurm over ssh. What it remembers is in the ledger: it can be killed at any moment.

    \b
    Example:
      bedplate health service --once --dry-run
    """
    site = open_site(root)
    site.refuse_example("drain nodes")
    url = site.ledger_url
    path = path_of(url).with_suffix(".health-service.lock")
    busy = f"another health service runs beside this ledger: process {{pid}} holds {path}"
    with (
        alone(path, busy) if not dry_run else nullcontext(),
        Ledger.scratch(url) if dry_run else Ledger.open(url) as ledger,
    ):
        say = partial(click.echo, err=as_json)  # with --json the rounds are documents, and the words beside them
        slurm = slurm_of(site, running(site).values())
        runs = Service(
            ledger, Looking(slurm, say) if dry_run else slurm, OverSsh(site), list(site.fleet.nodes),
            tell=partial(_tell, notify if not dry_run else None), say=say,
        )  # fmt: skip
        runs.read()
        if runs.watch.tripped:  # whoever ended before may have told nobody
            runs.tell(f"nothing is drained since an earlier run: {runs.watch.tripped}")
        while True:
            answered = runs.round()
            if as_json:
                click.echo(json.dumps({"answered": answered, "stopped": runs.watch.tripped, "trouble": runs.trouble}))
            if once:
                break
            time.sleep(interval_s)
    if runs.watch.tripped:
        raise Refused(f"nothing is drained: {runs.watch.tripped} (look; then: bedplate health resume)")
    if not answered:
        raise NodesFailed(runs.trouble)


@health.command()
@click.option("--approved-by", required=True, metavar="WHO", help="Who has looked.")
@click.option("--reason", required=True, help="What it was.")
@json_option
@click.pass_obj
def resume(root: Path, *, approved_by: str, reason: str, as_json: bool) -> None:
    """Let the service drain again, after a person has looked at what tripped its breaker.

    Nodes that still fail are drained then, however many they are: `bedplate health` says which.

    \b
    Example:
      bedplate health resume --approved-by ann --reason "the limit was wrong, and is rolled out"
    """
    site = open_site(root)
    site.refuse_example("drain nodes")
    with Ledger.open(site.ledger_url) as ledger:
        why = healthservice.resume(ledger, approved_by=approved_by, reason=reason)
    if as_json:
        print_json({"approved_by": approved_by, "had_stopped_because": why})
    else:
        click.echo(f"the service drains again; it had stopped because {why}")


def _tell(notify: Path | None, text: str) -> None:
    """Tell a person: in the log, and by a program of the site. One that fails keeps nobody from draining."""
    click.echo(f"ATTENTION: {text}", err=True)
    if notify is None:
        return
    try:
        process.run([notify], stdin=f"{text}\n", timeout_s=NOTIFY_S)
    except process.ProcessFailed as fault:
        click.echo(f"ATTENTION: nobody was told: {fault}", err=True)


@contextmanager
def _progress(total: int) -> Iterator[Callable[[Result], None]]:
    """A bar on a terminal's stderr, and a line for each node that is not well; elsewhere, the lines."""

    def line(result: Result) -> str:
        told = rows([result])
        return f"{result.node}: {result.verdict}" + (f" {told[0][2]} {told[0][4]}" if told else "")

    if not sys.stderr.isatty():
        yield lambda one: click.echo(line(one), err=True) if one.verdict in (FAIL, ERROR) else None
        return
    columns = (TextColumn("asking nodes"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn())
    with Progress(*columns, console=Console(stderr=True), transient=True) as bar:
        task = bar.add_task("", total=total)

        def seen(result: Result) -> None:
            bar.advance(task)
            if result.verdict in (FAIL, ERROR):
                bar.console.print(line(result), markup=False, highlight=False)

        yield seen


def _print(results: Sequence[Result], *, everything: bool) -> None:
    """Findings by severity, those that say the same of several nodes in one row; then how many nodes are how."""
    folded: dict[tuple[str, ...], list[str]] = {}
    for verdict, node, check, part, what, action in rows(results, everything=everything):
        folded.setdefault((verdict, check, part, what, action), []).append(node)
    table = [
        (verdict, fold(nodes), check, part, what, action)
        for (verdict, check, part, what, action), nodes in folded.items()
    ]
    if table:
        print_table(["verdict", "nodes", "check", "part", "what", "action"], table)
    by: dict[str, list[str]] = {}
    for result in results:
        by.setdefault(result.verdict, []).append(result.node)
    for verdict in sorted(by, key=lambda word: -SEVERITY[word]):
        click.echo(f"{verdict}: {len(by[verdict])} of {len(results)} nodes: {fold(by[verdict])}")


def _refuse_bad(results: Sequence[Result]) -> None:
    bad = {word: [r.node for r in results if r.verdict == word] for word in (FAIL, ERROR)}
    said = [f"{fold(bad[FAIL])} failed"] if bad[FAIL] else []
    said += [f"nothing is known of {fold(bad[ERROR])}"] if bad[ERROR] else []
    if said:
        raise NodesFailed("; ".join(said))


def _write(path: Path, text: str) -> None:
    try:
        write_whole(path, text)
    except OSError as fault:
        raise BedplateError(f"{path}: cannot be written: {fault.strerror}") from fault
