"""`bedplate ledger at|who|explain|rebuild`: questions to the record, answered from what is kept of it."""

import re
from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from pathlib import Path

import click

from bedplate.cli import near
from bedplate.cli.ledgernames import environments
from bedplate.cli.output import json_option, print_json, print_table
from bedplate.cli.whole import CUT
from bedplate.decide.fold import Status
from bedplate.decide.ledgerhistory import Change
from bedplate.decide.ledgerquestions import chain_of, sentence
from bedplate.ledger import story
from bedplate.ledger.projection import Moment, Projection, projection
from bedplate.ledger.projection import rebuild as fold_anew
from bedplate.ledger.store import Ledger
from bedplate.model.event import Event
from bedplate.model.faults import BadInput
from bedplate.sources.ledgeraddress import ledger_address

AGO = re.compile(r"(\d+)([smhdw])")
UNITS = {"s": "seconds", "m": "minutes", "h": "hours", "d": "days", "w": "weeks"}
FORMS = (
    "write: 2026-11-02, 2026-11-02T09:00 or 2026-11-02T09:00:30, which are UTC; 2026-11-02T09:00+01:00; or how long"
    " ago: 30s, 45m, 2h, 3d, 1w"
)
STEPS_READ = 50_000  # events of a change that are looked through for a node's steps
PLAIN = re.compile(r"[a-z0-9-]+(,[a-z0-9-]+)*")  # a host list that needs no library


def moment_of(said: str, option: str) -> str:
    """A time in the form in which events have it; without a zone it is UTC, as everything in the ledger."""
    try:
        if ago := AGO.fullmatch(said):
            moment = datetime.now(UTC) - timedelta(**{UNITS[ago[2]]: int(ago[1])})
        else:
            moment = datetime.fromisoformat(said)
        moment = moment.replace(tzinfo=UTC) if moment.tzinfo is None else moment.astimezone(UTC)
    except (ValueError, OverflowError) as fault:
        raise BadInput(f"{option} {said}: no time ({FORMS})") from fault
    return moment.isoformat(timespec="microseconds").replace("+00:00", "Z")


@click.command
@click.argument("time", metavar="TIME")
@click.option("--nodes", metavar="NODESET", help="Only these nodes; default: every node that the ledger knows.")
@json_option
@click.pass_obj
def at(root: Path, time: str, *, nodes: str | None, as_json: bool) -> None:
    """Say which environment each node ran at a time.

    TIME: 2026-11-02, 2026-11-02T09:00 (UTC without a zone), or how long ago: 30s, 45m, 2h, 3d, 1w.
    The order of events counts, their times only find the place.

    \b
    Example:
      bedplate ledger at 2026-11-02T09:00
      bedplate ledger at 3d --nodes gpu[001-008]
    """
    asked = moment_of(time, "TIME")
    with Ledger.read(ledger_address(root)) as book, projection(book) as kept:
        moment = kept.moment(book, asked)
        names = kept.names()
        states = {node: _last(kept, node, moment.event) for node in _nodes(kept, nodes)}
    if as_json:
        print_json({
            "time": asked, **_moment(moment),
            "nodes": {node: None if one is None else _change(one, names) for node, one in states.items()},
        })  # fmt: skip
        return
    _say_moment(asked, moment)
    print_table(["node", "status", "runs", "since event"], [
        (node, *((str(Status.NEVER), "-", "-") if one is None else (one.status, _called(one.runs, names), one.event)))
        for node, one in states.items()
    ])  # fmt: skip


@click.command
@click.argument("env", metavar="ENV")
@click.option("--at", "time", metavar="TIME", help="At this time instead of now: 2026-11-02T09:00, 3d.")
@json_option
@click.pass_obj
def who(root: Path, env: str, *, time: str | None, as_json: bool) -> None:
    """Say which nodes run an environment, by what was recorded.

    A node runs what its last completed change gave it; its status says whether a verification agreed.

    \b
    Example:
      bedplate ledger who 2026.11-a
      bedplate ledger who sha256:4f0c --at 3d
    """
    with Ledger.read(ledger_address(root)) as book, projection(book) as kept:
        names = kept.names()
        wanted = environments(env, names)
        moment = None if time is None else kept.moment(book, moment_of(time, "--at"))
        until = None if moment is None else moment.event
        found = [(node, one) for node in kept.nodes() if (one := _last(kept, node, until)) and one.runs in wanted]
    by: dict[str, list[str]] = {}
    for node, one in found:
        by.setdefault(one.status, []).append(node)
    if as_json:
        print_json({
            "environment": env, "identities": sorted(wanted), **({} if moment is None else _moment(moment)),
            "nodes": {node: one.status for node, one in found},
        })  # fmt: skip
        return
    if moment is not None:
        _say_moment(None, moment)
    for status, those in sorted(by.items()):
        click.echo(f"{len(those)} {status}: {story.folded(those)}")
    click.echo(f"{len(found)} nodes run {env}")


@click.command
@click.argument("node", metavar="NODE")
@json_option
@click.pass_obj
def explain(root: Path, node: str, *, as_json: bool) -> None:
    """Say why a node is in its state: the chain of events that made it so.

    From the beginning of its last change: its steps, its end, and what was found since.

    \b
    Example:
      bedplate ledger explain gpu017
    """
    if any(letter in node for letter in "[],"):
        raise BadInput(f"NODE {node}: explain takes one node (one after the other: bedplate ledger explain n1)")
    with Ledger.read(ledger_address(root)) as book, projection(book) as kept:
        known = kept.nodes()
        if node not in known:
            raise BadInput(_unexplained(root, node, known))
        state, names = kept.state(node), kept.names()
        began, ended, ids = chain_of(kept.changes(node), kept.latest(node))
        events = dict(book.chosen(ids))
        if began:
            until = min(ended if ended is not None else kept.head[0], began + STEPS_READ)
            for event in book.events(after=began, until=until, subject=f"{story.NODE}{node}"):
                events[event.id] = event
    chain = [events[number] for number in sorted(events)]
    told = sentence(node, state, names)
    if as_json:
        print_json({
            "node": node, "status": str(state.status), "sentence": told,
            "runs": None if state.runs is None else {"environment": names.get(state.runs), "identity": state.runs},
            "events": [_event(event) for event in chain],
        })  # fmt: skip
        return
    click.echo(told)
    for event in chain:
        when = event.at[:19].replace("T", " ") + "Z"
        click.echo(f"{event.id:>8}  {when}  {story.printable(event.kind):<17}  {story.summary(event)}".rstrip())
    if any(map(story.is_cut, chain)):
        click.echo(CUT, err=True)


@click.command
@json_option
@click.pass_obj
def rebuild(root: Path, *, as_json: bool) -> None:
    """Fold what the ledger says anew, instead of relying on what was kept of it.

    The kept file lies beside the ledger and can be removed at any time; `verify` compares it with the events.

    \b
    Example:
      bedplate ledger rebuild
    """
    with Ledger.read(ledger_address(root)) as book:
        head = fold_anew(book)
        path = book.cache
    kept = path is not None and path.exists()
    if as_json:
        print_json({"event": head[0], "sha256": head[1], "file": str(path) if kept else None})
    else:
        click.echo(f"folded up to event {head[0]} {head[1]}" + ("" if kept else " (too few events to keep a file)"))


def _unexplained(root: Path, node: str, known: Sequence[str]) -> str:
    """Why nothing can be said of a node: it is none, or nothing happened to it yet."""
    from bedplate.sources.site import open_site  # noqa: PLC0415  half a second that a known node does not need

    fleet = open_site(root).fleet.nodes
    if node in fleet:
        return (
            f"{node}: the fleet has it, and no event of a change or a verification names it: nothing was done with it"
            f" yet (what else names it: bedplate ledger log --nodes {node})"
        )
    there = f"{near.said(node, {*fleet, *known})}the fleet has: {story.folded(fleet)}"
    return f"{node}: the fleet has no such node, and no event of a change or a verification names it ({there})"


def _nodes(kept: Projection, said: str | None) -> Sequence[str]:
    known = kept.nodes()
    if said is None:
        return known
    if PLAIN.fullmatch(said):
        return said.split(",")
    from bedplate.model.nodes import expand  # noqa: PLC0415  ClusterShell takes a tenth of a second

    try:
        return expand(said)
    except ValueError as fault:
        raise BadInput(f"--nodes {said}: {fault} (write: n[1-4,7])") from fault


def _last(kept: Projection, node: str, until: int | None) -> Change | None:
    found = kept.changes(node, until=until, last=1)
    return found[0] if found else None


def _called(identity: str | None, names: dict[str, str]) -> str:
    return "-" if identity is None else f"{names.get(identity, '?')}@{story.short(identity)}"


def _change(one: Change, names: dict[str, str]) -> dict[str, object]:
    environment = None if one.runs is None else names.get(one.runs)
    return {"status": one.status, "runs": one.runs, "environment": environment, "event": one.event}


def _event(event: Event) -> dict[str, object]:
    return {"id": event.id, "at": event.at, "kind": event.kind, "actor": event.actor, "says": story.summary(event)}


def _moment(moment: Moment) -> dict[str, object]:
    return {"event": moment.event, "event_at": moment.at, "event_of_a_later_time": moment.later}


def _say_moment(asked: str | None, moment: Moment) -> None:
    if moment.event == 0:
        click.echo(f"no event is as old as {asked}" if asked else "no event is that old", err=True)
        return
    click.echo(f"after event {moment.event}, {str(moment.at)[:19].replace('T', ' ')}Z", err=True)
    if moment.later is not None:
        click.echo(
            f"the clock went back: event {moment.later} stands before it and says a later time, so this time is there "
            "twice; this is the later of the two", err=True,
        )  # fmt: skip
