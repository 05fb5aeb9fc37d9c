"""`bedplate node ticket|replace|return`: the way of a node that failed, until it is back."""

import datetime
import io
import json
import tarfile
import tempfile
from dataclasses import asdict
from functools import partial
from pathlib import Path

import click

from bedplate.act.healthmark import forget_before
from bedplate.act.slurm import slurm_of
from bedplate.cli.exchange import exchange, replaced
from bedplate.cli.names import node_names
from bedplate.cli.output import json_option, print_json
from bedplate.decide.acceptance import ACCEPTED, ANSWERED, refusal
from bedplate.decide.acceptance import REFUSED as NOT_ACCEPTED
from bedplate.decide.fold import World, running_names
from bedplate.decide.healthresult import unwell
from bedplate.decide.healthwatch import REPAIRED, TICKET
from bedplate.decide.nodeswap import told
from bedplate.decide.slurmnodes import SlurmNode
from bedplate.decide.ticket import about, ticket, title
from bedplate.decide.verification import PASS as VERIFIED
from bedplate.ledger import projection, story
from bedplate.ledger.store import Ledger
from bedplate.model.canonical import sha256
from bedplate.model.event import Draft
from bedplate.model.faults import BadInput, BedplateError, NodesFailed
from bedplate.observe.health import ask, new_run
from bedplate.observe.verify import verify
from bedplate.sources.files import write_whole
from bedplate.sources.site import Site, open_site
from bedplate_agent.probe import CLASSES, OUT_OF_BAND, PASSIVE
from bedplate_agent.sinks import PREFIX, Result, lines, text


@click.command("ticket")
@click.argument("name", metavar="NODE")
@click.option("--directory", type=click.Path(path_type=Path), default=Path(), help="Where ticket and evidence go.")
@click.option("--note", default="", help="What a person wants to add.")
@json_option
@click.pass_obj
def ticket_(root: Path, name: str, directory: Path, note: str, as_json: bool) -> None:
    """Write the text of a ticket, and a bundle with the evidence.

    Asks the node and its BMC once more, and keeps what every probe said, beside what Slurm and the ledger have of it.
    From then on the node comes back by `bedplate node return`, and not by itself. Text on stdout.

    \b
    Example:
      bedplate node ticket n4 --directory tickets --note "third time this month"
    """
    site, (name,) = _site(root, name)
    with Ledger.open(site.ledger_url) as ledger, tempfile.TemporaryDirectory(prefix="bedplate-ticket-") as folder:
        record, found = Path(folder) / "record", list[Result]()
        run = new_run()
        ask(site, [name], run=run, classes=(PASSIVE, OUT_OF_BAND), record=record, report=found.append)
        (result,) = found
        world = projection.world(ledger)
        known, trouble = _slurm_state(site, world, name)
        events = [event for event in ledger.events(subject=f"node:{name}") if event.kind != "step.ended"]
        stem = f"{name}-{run}"
        page = ticket(
            site.fleet, world, name, result, slurm=known, events=[about(e, story.summary(e)) for e in events],
            note=f"{note}\n{trouble}".strip(), bundle=f"{stem}.tar.gz",
        )  # fmt: skip
        slurm = None
        if known is not None:
            slurm = {"state": sorted(known.flags), "reason": known.reason, "partitions": known.partitions}
        parts = {
            "ticket.md": page, "results.jsonl": lines(result), "results.txt": text(result, everything=True),
            "ledger.jsonl": "".join(json.dumps(asdict(event), sort_keys=True) + "\n" for event in events),
            "slurm.json": json.dumps(slurm) + "\n",
        }  # fmt: skip
        data = _bundle(stem, parts, record / name)
        try:
            directory.mkdir(parents=True, exist_ok=True)
            write_whole(directory / f"{stem}.tar.gz", data)
            write_whole(directory / f"{stem}.md", page)
        except OSError as fault:
            raise BedplateError(f"{directory}: cannot be written: {fault.strerror}") from fault
        body = {
            "run": run, "verdict": result.verdict, "title": title(name, result), "note": note,
            "bundle": f"{stem}.tar.gz", "bundle_sha256": sha256(data), "bundle_bytes": len(data),
        }  # fmt: skip
        ledger.append(Draft(TICKET, (f"node:{name}",), body))
    if as_json:
        print_json({**body, "node": name, "directory": str(directory), "text": page})
    else:
        click.echo(page, nl=False)


def _bundle(stem: str, parts: dict[str, str], record: Path) -> bytes:
    """A tar of texts, and of what every probe said, in a folder of its own."""
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w:gz") as archive:
        for name, said in parts.items():
            data = said.encode()
            entry = tarfile.TarInfo(f"{stem}/{name}")
            entry.size, entry.mode = len(data), 0o644
            archive.addfile(entry, io.BytesIO(data))
        if record.is_dir():  # a node that did not answer has none
            archive.add(record, arcname=f"{stem}/record")
    return buffer.getvalue()


@click.command("return")
@click.argument("name", metavar="NODE")
@click.option(
    "--class", "classes", multiple=True, type=click.Choice(CLASSES), help="Only these: look, and change nothing."
)
@click.option(
    "--since", type=click.DateTime(["%Y-%m-%dT%H:%M:%SZ", "%Y-%m-%dT%H:%MZ"]), metavar="TIME",
    help="UTC: what the kernel of this boot reported before was dealt with (a reset after an Xid).",
)  # fmt: skip
@json_option
@click.pass_obj
def return_(
    root: Path, *, name: str, classes: tuple[str, ...], since: datetime.datetime | None, as_json: bool
) -> None:  # fmt: skip
    """Prove that a repaired node is whole, and give it back.

    Every check, the loading ones included (up to two hours), and the verification against its lock. If all of it
    passes it is recorded as repaired, and resumed in Slurm if its drain is ours. Exit code 4: it does not.

    \b
    Example:
      bedplate node return n4
    """
    site, (name,) = _site(root, name)
    with Ledger.open(site.ledger_url) as ledger:
        world = projection.world(ledger)
        slurm = slurm_of(site, running_names(world))
        known = slurm.nodes()
        found: list[Result] = []
        run = new_run()
        since_us = int(since.replace(tzinfo=datetime.UTC).timestamp()) * 1_000_000 if since else 0
        ask(site, [name], run=run, classes=classes or CLASSES, since_us=since_us, report=found.append)
        (result,) = found
        why = unwell(name, result) + _not_accepted(ledger, name)
        runs = world.names.get(world.state(name).runs or "")
        if runs is None:
            why.append(f"the ledger does not know what {name} runs (bedplate rollout ENV --nodes {name})")
        else:
            verified = verify(site, {name: runs})[name]
            why += [] if verified.verdict == VERIFIED else [f"{name} is not what its lock says: {verified.why}"]
        if classes and set(classes) != set(CLASSES):
            why.append(f"only {', '.join(classes)} was asked: that proves nothing")
        if why:
            raise NodesFailed(f"{name} is not given back:\n{told(why)}")
        if since_us:
            forget_before(site, name, since_us)  # its own timer would find the same again
        ledger.append(Draft(REPAIRED, (f"node:{name}",), {"run": run, "environment": runs, "verdict": result.verdict}))
        state = known.get(name)
        ours = state is not None and state.out and state.reason.startswith(PREFIX)
        if as_json:
            print_json({"node": name, "verdict": result.verdict, "environment": runs, "ours": ours, "run": run})
        else:
            click.echo(f"{name} is whole: {len(result.findings)} findings, {result.verdict}; it equals {runs}")
        if state is None or not state.out:
            return
        if not ours:
            click.echo(f"left drained, for the reason is not ours: {state.reason}", err=as_json)
            return
        if left := slurm.resume({name: state.reason})[name]:
            raise NodesFailed(f"{name} is whole, and was not given back: {left}")
        click.echo(f"returned, it was drained for {state.reason}", err=as_json)


def _not_accepted(ledger: Ledger, name: str) -> list[str]:
    """That a training acceptance since the ticket refused it, where there was one."""
    kinds = (TICKET, ACCEPTED, ANSWERED, NOT_ACCEPTED)
    if refusal(ledger.events(kinds=kinds, subject=f"node:{name}")) is None:
        return []
    look = f"bedplate node accept {name}"
    return [f"its last acceptance refused it (look: {look} --show; ask again: {look} --engine enroot)"]


@click.command("replace")
@click.argument("bad", metavar="BAD")
@click.argument("spare", metavar="SPARE")
@click.option("--approved-by", required=True, metavar="WHO", help="Who decided it.")
@click.option("--reason", default="", help="Why, beside what Slurm has as the reason.")
@click.option("--dry-run", is_flag=True, help="Say what would be done, and what speaks against it.")
@json_option
@click.pass_obj
def replace_(
    root: Path, *, bad: str, spare: str, approved_by: str, reason: str, dry_run: bool, as_json: bool
) -> None:  # fmt: skip
    """Put a spare in the place of a bad node: fleet file, Slurm, ledger.

    The spare is proven first: it runs the environment that is asked for, equals its lock, image included, and is
    healthy. Refuses with every reason (exit code 3). The two change groups; nothing else in the file changes.

    \b
    Example:
      bedplate node replace n4 n7 --approved-by ann
    """
    site, (bad, spare) = _site(root, bad, spare)
    partitions = exchange(
        site, bad, spare, approved_by=approved_by, reason=reason, dry_run=dry_run, say=partial(click.echo, err=as_json)
    )
    if partitions is None:
        return
    if as_json:
        print_json({"bad": bad, "spare": spare, "partitions": partitions})
    else:
        click.echo(replaced(bad, spare, partitions))


def _site(root: Path, *names: str) -> tuple[Site, list[str]]:
    site = open_site(root)
    site.refuse_example("repair nodes")
    found = [one for name in names for one in node_names(site, name, said="NODE")]
    if len(found) != len(names):
        raise BadInput(f"{' '.join(names)}: one node each")
    return site, found


def _slurm_state(site: Site, world: World, name: str) -> tuple[SlurmNode | None, str]:
    """What Slurm has of a node; a ticket is written without it too."""
    try:
        return slurm_of(site, running_names(world)).nodes().get(name), ""
    except BedplateError as fault:
        return None, f"Slurm was not asked: {fault}"
