"""`bedplate ledger verify`: whether the record is intact, by itself and against what was signed and noted elsewhere."""

import re
from dataclasses import asdict
from pathlib import Path

import click

from bedplate.act import anchor as anchors
from bedplate.act.ledgercopy import missing_files
from bedplate.cli.output import json_option, print_json
from bedplate.decide.chain import Damage
from bedplate.ledger.comparison import Comparison
from bedplate.ledger.store import Ledger
from bedplate.model.faults import BadInput, DifferencesFound, NodesFailed
from bedplate.sources.site import open_site

DAMAGED, UNKNOWN = DifferencesFound.exit_code, NodesFailed.exit_code
HEAD = re.compile(r"(\d+)[: ](?:sha256:)?([0-9a-f]{64})")


@click.command
@click.option("--head", "noted", metavar="ID:SHA256", help="A head noted elsewhere: shows a tail that was cut off.")
@click.option("--offline", is_flag=True, help="Do not ask the places of anchors: those that the ledger has must do.")
@click.option("--files", is_flag=True, help="Hash every file that the ledger names, instead of looking at its size.")
@json_option
@click.pass_obj
def verify(root: Path, *, noted: str | None, offline: bool, files: bool, as_json: bool) -> int:
    """Recompute every hash, compare with every signed head, and name all that is damaged.

    Edited, deleted, moved and inserted events, forks, a tail that was cut off, an old copy: each with its event.
    Exit code 5 when something is damaged, 4 when a place of anchors could not be read: then a cut tail is not known.

    \b
    Example:
      bedplate ledger verify
      bedplate ledger verify --head 12:sha256:4f0c…
    """
    expect_head = _head(noted)
    site = open_site(root)
    with Ledger.read(site.ledger_url) as book:
        signed = anchors.evidence(site, book, ask_places=not offline)
        with Comparison(site.ledger_url, book) as kept:
            found = book.examine(expect_head=expect_head, heads=(*signed.heads, *kept.heads))
            stale = [] if found.damage else [Damage(None, what) for what in kept.wrong()]
        damage: list[Damage] = [*found.damage, *signed.damage, *stale]
        if not found.damage:
            damage += missing_files(site, book, whole=files)
        name, exists = book.name, book.exists
    head_id, head_sha256 = found.head
    newest = signed.newest
    if as_json:
        print_json({
            "ledger": name, "events": found.events, "head": {"id": head_id, "sha256": head_sha256},
            "intact": not damage, "damage": [asdict(one) for one in damage], "unknown": list(signed.unknown),
            "losses": list(signed.losses),
            "anchored": None if newest is None else {"id": newest.id, "at": newest.at, "by": newest.principal},
        })  # fmt: skip
        return _code(damage, signed.unknown)
    for one in damage:
        click.echo(str(one))
    for line in (*signed.unknown, *signed.losses):
        click.echo(line, err=True)
    if damage:
        named = len({one.event_id for one in damage} - {None})
        click.echo(f"{name}: damaged: {named} of {found.events} events named above", err=True)
    else:
        absent = "" if exists else f" (there is no {name} yet)"
        click.echo(f"{found.events} events, head {head_id} {head_sha256}, chain intact{absent}")
        if newest is not None:
            click.echo(f"anchored up to event {newest.id}, {newest.at[:19].replace('T', ' ')}Z by {newest.principal}")
        elif site.ledger_site.places:
            click.echo("no signed head yet: a cut tail would not be seen (run: bedplate ledger anchor)", err=True)
    return _code(damage, signed.unknown)


def _code(damage: list[Damage], unknown: tuple[str, ...]) -> int:
    return DAMAGED if damage else UNKNOWN if unknown else 0


def _head(noted: str | None) -> tuple[int, str] | None:
    if noted is None:
        return None
    found = HEAD.fullmatch(noted)
    if found is None:
        raise BadInput(f"--head {noted}: no head (write: ID:sha256:64 hex digits, as `bedplate ledger verify` prints)")
    return int(found[1]), f"sha256:{found[2]}"
