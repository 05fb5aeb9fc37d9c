"""`bedplate ledger log` and `show`: what happened, event by event."""

import json
from collections import deque
from collections.abc import Callable, Iterator, Mapping
from dataclasses import asdict
from pathlib import Path

import click

from bedplate.cli import near
from bedplate.cli.ledgerask import moment_of
from bedplate.cli.ledgernames import environments
from bedplate.cli.output import json_option, print_json
from bedplate.cli.whole import CUT
from bedplate.decide.chain import Judged
from bedplate.ledger import story
from bedplate.ledger.store import Ledger
from bedplate.model.event import Event
from bedplate.model.faults import BadInput, DifferencesFound
from bedplate.model.nodes import expand
from bedplate.sources.site import Site, open_site

DAMAGED = DifferencesFound.exit_code

Found = tuple[int, Judged]


@click.command
@click.option("--nodes", metavar="NODESET", help="Only events about one of these nodes: n[1-4].")
@click.option("--env", metavar="NAME|IDENTITY", help="Only events of this environment; an identity may be short.")
@click.option("--kind", "kinds", metavar="K", multiple=True, help="Only this kind, or all below it: rollout.")
@click.option("--since", metavar="TIME", help="Only events since: 2026-11-02, 2026-11-02T09:00 (UTC), 2h, 3d.")
@click.option("--last", type=click.IntRange(min=1), metavar="N", help="Only the last N of them.")
@json_option
@click.pass_obj
def log(
    root: Path, *, nodes: str | None, env: str | None, kinds: tuple[str, ...], since: str | None,
    last: int | None, as_json: bool,
) -> int:  # fmt: skip
    """Print events, one a line.

    Id, UTC time, actor, kind, subjects, environment, and what it says.
    An event that is not what was recorded is always printed, marked, and makes the exit code 5.
    A kind or a node that nobody knows is refused; one that is known and has no event is said so on stderr.

    \b
    Example:
      bedplate ledger log --last 20
      bedplate ledger log --nodes n[1-4] --kind node --since 2d
      bedplate ledger log --env A --json
    """
    site = open_site(root)
    with Ledger.read(site.ledger_url) as book:
        names = _names(book)
        _refuse_kinds(book, kinds)
        _refuse_nodes(site, book, nodes)
        wanted = _wanted(nodes, env, kinds, since, names)
        # Without a filter the last N need no walk through the others.
        unfiltered = last is not None and not any((nodes, env, kinds, since))
        after = max(book.head()[0] - (last or 0), 0) if unfiltered else 0
        chosen: Iterator[Found] | deque[Found] = (
            (number, judged)
            for number, judged in book.judged(after=after)
            if judged.wrong or judged.event is None or wanted(judged.event)
        )
        if last is not None:
            chosen = deque(chosen, maxlen=last)
        damaged = shown = 0
        cut = False
        documents = []
        for number, judged in chosen:
            shown += 1
            damaged += bool(judged.wrong)
            cut = cut or (judged.event is not None and story.is_cut(judged.event))
            if as_json:
                documents.append(_document(number, judged, names))
            else:
                click.echo(_line(number, judged, names))
    if as_json:
        print_json(documents)
    if cut and not as_json:
        click.echo(CUT, err=True)
    if not shown:
        asked = [("--nodes", nodes), ("--env", env), *(("--kind", kind) for kind in kinds), ("--since", since)]
        filters = " ".join(f"{option} {word}" for option, word in asked if word)
        click.echo(f"no event{f' of {filters}' if filters else ': the ledger is empty'}", err=True)
    if damaged:
        click.echo(f"{damaged} damaged (run: bedplate ledger verify)", err=True)
    return DAMAGED if damaged else 0


@click.command
@click.argument("event_id", metavar="ID", type=click.IntRange(min=1))
@json_option
@click.pass_obj
def show(root: Path, event_id: int, *, as_json: bool) -> int:
    """Print one event whole, and whether its hashes hold.

    Its own, and those that link it to its neighbours.

    \b
    Example:
      bedplate ledger show 12
      bedplate ledger show 12 --json
    """
    with Ledger.read(open_site(root).ledger_url) as book:
        judged = book.event(event_id)
        if judged is None:
            raise BadInput(f"event {event_id}: the ledger {book.name} ends with event {book.head()[0]}")
        names = _names(book)
    if as_json:
        print_json(_document(event_id, judged, names))
    else:
        _show(event_id, judged, names)
    return DAMAGED if judged.wrong else 0


def _names(book: Ledger) -> dict[str, str]:
    """Identity -> name of every environment whose lock the ledger has."""
    return {
        judged.event.environment: str(judged.event.body.get("environment", "?"))
        for _, judged in book.judged(kinds=["lock.resolved"])
        if judged.event is not None and judged.event.environment is not None
    }


def _wanted(
    nodes: str | None, env: str | None, kinds: tuple[str, ...], since: str | None, names: Mapping[str, str]
) -> Callable[[Event], bool]:
    """Whether an event passes every filter that was given."""
    about = None if nodes is None else {f"{story.NODE}{name}" for name in _expand(nodes)}
    identities = None if env is None else environments(env, names, asked="--env ", elsewhere=True)
    start = None if since is None else moment_of(since, "--since")

    def wanted(event: Event) -> bool:
        return (
            (about is None or not about.isdisjoint(event.subjects))
            and (identities is None or event.environment in identities or f"{story.ENVIRONMENT}{env}" in event.subjects)
            and (not kinds or any(story.below(event.kind, kind) for kind in kinds))
            and (start is None or event.at >= start)
        )

    return wanted


def _refuse_kinds(book: Ledger, asked: tuple[str, ...]) -> None:
    """Refuse a kind that neither this version nor the ledger knows: others may have recorded kinds of their own."""
    strange = [word for word in asked if not any(story.below(kind, word) for kind in story.KINDS)]
    if not strange:
        return
    known = story.KINDS | {judged.event.kind for _, judged in book.judged() if judged.event is not None}
    families = {kind.partition(".")[0] for kind in known}
    for word in strange:
        if not any(story.below(kind, word) for kind in known):
            there = f"{near.said(word, known | families)}all below one word: {', '.join(sorted(families))}"
            raise BadInput(f"--kind {word}: no event is of such a kind ({there})")


def _refuse_nodes(site: Site, book: Ledger, asked: str | None) -> None:
    """Refuse nodes that neither the fleet nor an event names; the ledger knows those that left the fleet."""
    strange = {name for name in _expand(asked) if name not in site.fleet.nodes} if asked else set[str]()
    if not strange:
        return
    for _, judged in book.judged():
        if judged.event is not None:
            strange.difference_update(subject.removeprefix(story.NODE) for subject in judged.event.subjects)
    if strange:
        there = f"{near.said(min(strange), site.fleet.nodes)}the fleet has: {story.folded(site.fleet.nodes)}"
        raise BadInput(
            f"--nodes {asked}: the fleet has no {story.folded(sorted(strange))}, and no event names it ({there})"
        )


def _expand(nodes: str) -> list[str]:
    try:
        return expand(nodes)
    except ValueError as fault:
        raise BadInput(f"--nodes {nodes}: {fault} (write: n[1-4,7])") from fault


def _line(number: int, judged: Judged, names: Mapping[str, str]) -> str:
    event = judged.event
    if event is None:
        return f"{number:>6}  DAMAGED: {story.printable('; '.join(judged.wrong))}"
    at = event.at[:19].replace("T", " ") + "Z"
    said = story.summary(event)
    if judged.wrong:
        said = f"DAMAGED: {story.printable('; '.join(judged.wrong))}: {said}"
    name = None if event.environment is None else names.get(event.environment)
    parts = [
        f"{number:>6}", at, story.printable(event.actor), f"{story.printable(event.kind):<17}",
        story.subjects(event, environment_name=name), story.environment(event, names), said,
    ]  # fmt: skip
    return "  ".join(parts).rstrip()


def _document(number: int, judged: Judged, names: Mapping[str, str]) -> dict[str, object]:
    event = judged.event
    if event is None:
        return {"id": number, "verified": False, "damage": list(judged.wrong)}
    return {
        **asdict(event), "subjects": list(event.subjects), "verified": not judged.wrong,
        "environment_name": None if event.environment is None else names.get(event.environment),
        "damage": list(judged.wrong),
    }  # fmt: skip


def _show(number: int, judged: Judged, names: Mapping[str, str]) -> None:
    event = judged.event
    click.echo(f"event {number}")
    if event is not None:
        identity = "-" if event.environment is None else f"{names.get(event.environment, '?')} {event.environment}"
        for title, value in (
            ("at", event.at), ("actor", event.actor), ("kind", event.kind), ("subjects", story.subjects(event)),
            ("environment", identity), ("body", event.body_sha256), ("previous", event.previous),
            ("sha256", event.sha256),
        ):  # fmt: skip
            click.echo(f"  {title:<12} {story.printable(value, 10_000)}")
    if judged.wrong:
        for what in judged.wrong:
            click.echo(f"  {'DAMAGED':<12} {story.printable(what, 1000)}")
    else:
        click.echo(f"  {'verified':<12} body, fields and neighbours hash to what was recorded")
    if event is not None:
        # ASCII escapes: a body may hold what would steer a terminal.
        click.echo(json.dumps(event.body, indent=2, sort_keys=True))
