"""`bedplate node accept`: is this machine a reference, by the questions of the program in its image?"""

import re
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import click
from rich.console import Console
from rich.progress import Progress, TaskID, TextColumn, TimeElapsedColumn

from bedplate.act.acceptance import FOLDER, Row, Wanted, latest
from bedplate.act.acceptance import accept as accept_nodes
from bedplate.cli.names import node_names
from bedplate.cli.output import json_option, print_json, print_table
from bedplate.decide.acceptance import ACCEPTED, ANSWERED, PASSED, QUESTIONS, UNKNOWN
from bedplate.decide.acceptancescripts import ENGINES, options
from bedplate.model.event import Event
from bedplate.model.faults import BadInput, NodesFailed
from bedplate.model.nodes import fold
from bedplate.observe.running import running
from bedplate.sources.site import Site, open_site

WIDTH = 96
MOUNT = re.compile(r"/[^:,\s]*:/[^:,\s]*(:ro)?")


@click.command()
@click.argument("nodes", metavar="NODE...", nargs=-1, required=True)
@click.option("--profile", type=click.Path(path_type=Path), help="Default: acceptance/MODEL.yml of the site.")
@click.option("--env", "environment", metavar="ENV", help="Default: what the ledger says the nodes run.")
@click.option(
    "--engine", type=click.Choice(list(ENGINES)), default="slurm", show_default=True,
    help="enroot: a drained node, to which Slurm gives no job. docker: a first machine, before there is a Slurm.",
)  # fmt: skip
@click.option(
    "--questions", metavar="LIST", help="Only these, as devices,compute,exchange: a look at a node, no acceptance."
)
@click.option("--reference", metavar="NODE", help="Compare speeds with the record of an accepted machine.")
@click.option("--data", metavar="DIR", help="On the nodes; default: small data that the image's program writes.")
@click.option(
    "--mount", "mounts", multiple=True, metavar="SRC:DST[:ro]", help="One more mount of the container, from the node."
)
@click.option("--user", metavar="NAME", help="Who submits the job on the node; default: who logs in there.")
@click.option("--option", "texts", multiple=True, metavar="TEXT", help="Words for sbatch, systemd-run or docker run.")
@click.option(
    "--queue", "queue_s", type=click.FloatRange(1, 604800), default=3600, show_default=True,
    help="Seconds that a job may wait for its node.",
)  # fmt: skip
@click.option(
    "--interval", "interval_s", type=click.FloatRange(0.2, 300), default=15, show_default=True,
    help="Seconds between two looks at a job.",
)  # fmt: skip
@click.option("--width", type=click.IntRange(1, 640), default=WIDTH, show_default=True, help="Nodes at once.")
@click.option("--show", is_flag=True, help="Ask nothing: show the last acceptance that the ledger has.")
@json_option
@click.pass_obj
def accept(
    root: Path, *, nodes: tuple[str, ...], profile: Path | None, environment: str | None, engine: str,
    questions: str | None, reference: str | None, data: str | None, user: str | None, mounts: tuple[str, ...],
    texts: tuple[str, ...],
    queue_s: float, interval_s: float, width: int, show: bool, as_json: bool,
) -> None:  # fmt: skip
    """Ask a machine the questions that make it a reference, in its image; record the answers.

    NODE: names or host lists. Devices, compute, exchange, resume, learning, in this order; a failed question stops
    the rest. Every node is asked by itself. Record and logs are kept in the site, in acceptances/ID; profile, inputs,
    numbers, verdicts and the hashes of record and logs in the ledger.
    Exit code 4: a node was not accepted, or nothing is known of it.

    \b
    Examples:
      bedplate node accept gpu[001-004] --reference gpu640
      bedplate node accept gpu001 --engine docker --env 2026.11-a
      bedplate node accept gpu017 --engine enroot --questions devices,compute,exchange
      bedplate node accept gpu001 --show
    """
    site = open_site(root)
    names = list(dict.fromkeys(name for text in nodes for name in node_names(site, text, said="NODE")))
    if show:
        _show(site, names, as_json=as_json)
        return
    if reference:
        node_names(site, reference, said="--reference")
    bad = [mount for mount in mounts if not MOUNT.fullmatch(mount)]
    if bad:
        raise BadInput(f"--mount {bad[0]}: wanted SRC:DST or SRC:DST:ro, absolute paths")
    chosen = _questions(questions)
    try:
        words = options(texts)
    except ValueError as fault:
        raise BadInput(f"--option: {fault}") from None
    groups: dict[str, list[str]] = {}
    for name, wanted in _environments(site, names, environment).items():
        groups.setdefault(wanted, []).append(name)
    rows: list[Row] = []
    with _progress(as_json) as (watch, report):
        for wanted, members in groups.items():
            how = Wanted(wanted, engine, profile, data, reference, user, words, mounts, queue_s, interval_s, chosen)
            rows += accept_nodes(site, members, how, width=width, watch=watch, report=report)
    _print(rows, as_json=as_json)
    refused = [row.node for row in rows if not row.answered.accepted]
    if refused:
        raise NodesFailed(f"not accepted: {fold(refused)} (look: {FOLDER}/ID in {site.root}, and on the node)")


def _questions(text: str | None) -> tuple[str, ...]:
    """In the order in which they are asked, whatever order they were named in."""
    if text is None:
        return QUESTIONS
    named = text.split(",")
    unknown = [name for name in named if name not in QUESTIONS]
    if unknown:
        raise BadInput(f"--questions: no question is called {unknown[0]!r} (there are {', '.join(QUESTIONS)})")
    return tuple(name for name in QUESTIONS if name in named)


def _environments(site: Site, names: Sequence[str], asked: str | None) -> dict[str, str]:
    if asked:
        return dict.fromkeys(names, asked)
    runs = running(site)
    unknown = [name for name in names if name not in runs]
    if unknown:
        raise BadInput(f"the ledger has no environment that {fold(unknown)} runs (say which with --env)")
    return {name: runs[name] for name in names}


@contextmanager
def _progress(quiet: bool) -> Iterator[tuple[Callable[[str, str], None], Callable[[Row], None]]]:
    """What each node does now, on a terminal: a line each; else a line for every change."""
    console = Console(stderr=True)
    if quiet or not console.is_terminal:
        before: dict[str, str] = {}

        def watch(node: str, text: str) -> None:
            if not quiet and before.get(node) != text:
                before[node] = text
                print(f"{node}: {text}", file=sys.stderr, flush=True)

        yield watch, lambda _: None
        return
    with Progress(TextColumn("{task.description}"), TimeElapsedColumn(), console=console) as shown:
        tasks: dict[str, TaskID] = {}

        def draw(node: str, text: str) -> None:
            if node not in tasks:
                tasks[node] = shown.add_task(node, total=None)
            shown.update(tasks[node], description=f"{node}: {text}")

        yield draw, lambda row: draw(row.node, _verdict(row.event))


def _verdict(event: Event) -> str:
    words = {ACCEPTED: "accepted", ANSWERED: "answered"}
    return words.get(event.kind) or (UNKNOWN.upper() if event.body["verdict"] == UNKNOWN else "REFUSED")


def _print(rows: Sequence[Row], *, as_json: bool) -> None:
    if as_json:
        print_json({"nodes": {row.node: _document(row.event) for row in rows}})
        return
    print_table(
        ["node", "verdict", *QUESTIONS, "record"],
        [[row.node, _verdict(row.event), *_answers(row.event.body), row.folder] for row in rows],
    )
    for row in rows:
        for line in _why(row.event.body):
            click.echo(f"{row.node}: {line}")


def _document(event: Event) -> dict[str, Any]:
    return {"event": event.id, "at": event.at, "actor": event.actor, "kind": event.kind, **event.body}


def _answers(body: Mapping[str, Any]) -> list[str]:
    found = body.get("questions", {})
    return [str(found.get(name, {}).get("verdict", "")) for name in QUESTIONS]


def _why(body: Mapping[str, Any]) -> list[str]:
    lines = [str(body["why"])] if body["why"] else []
    lines += [f"  look at {body['look_at']}"] if body["look_at"] else []
    if body.get("stand_in"):
        lines.append(f"stand-in, no machine is proven by this; not proven: {', '.join(body['not_proven'])}")
    return lines


def _show(site: Site, names: Sequence[str], *, as_json: bool) -> None:
    found = {name: latest(site, name) for name in names}
    if as_json:
        print_json({"nodes": {name: each and _document(each) for name, each in found.items()}})
        return
    for name, each in found.items():
        if each is None:
            click.echo(f"{name}: never asked")
            continue
        body = each.body
        click.echo(
            f"{name}: {_verdict(each)} at {each.at[:19]}Z by {each.actor}, event {each.id}\n"
            f"  environment {body['environment']}, profile {body['profile']['name']}, {body['engine']}\n"
            f"  record {site.root / FOLDER / str(body['id'])}, {body['record_sha256'] or 'none'}"
        )
        for line in _why(body):
            click.echo(f"  {line}")
        print_table(["question", "check", "verdict", "numbers"], _lines(body.get("questions", {})))


def _lines(questions: Mapping[str, Any]) -> list[list[str]]:
    rows = []
    for name in QUESTIONS:
        answer = questions.get(name)
        if answer is None:
            continue
        rows.append([name, "", str(answer["verdict"]), str(answer.get("said", ""))])
        for check in answer.get("checks", []):
            word = "not answered" if check["passed"] is None else PASSED if check["passed"] else "failed"
            rows.append(["", str(check["check"]), word, _numbers(check)])
    return rows


def _numbers(check: Mapping[str, Any]) -> str:
    """The numbers of a check: `error 1.3e-7, tolerance 0.0002`; of sizes the speeds."""
    plain = [
        f"{name} {value}" for name, value in check.items()
        if name not in ("check", "passed", "must_miss", "sizes") and not isinstance(value, list | dict)
    ]  # fmt: skip
    plain += [f"{size['bytes']} bytes {size['bus_gb_per_s']} GB/s" for size in check.get("sizes", [])]
    plain += [f"{name} {value}" for name, value in check.items() if isinstance(value, list) and name != "sizes"]
    return ", ".join(plain)
