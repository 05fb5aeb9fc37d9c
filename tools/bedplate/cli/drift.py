"""`bedplate drift`: are nodes still what their locks say?"""

from collections.abc import Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import click

from bedplate.cli.collect import gather, images_option, timeout_option, width_option
from bedplate.cli.names import node_names
from bedplate.cli.output import json_option, print_json, print_table
from bedplate.decide.drift import Group, groups
from bedplate.ledger.store import Ledger
from bedplate.model.canonical import DIGEST
from bedplate.model.faults import BadInput, DifferencesFound, NodesFailed
from bedplate.model.nodes import fold
from bedplate.observe.drift import VERDICTS, Held, held, summary
from bedplate.sources.site import Site, open_site

SHORT = 19  # characters of a digest: sha256: and 12 digits
ALIKE_SHOWN = 8  # rows about the same thing on the same nodes, such as packages that are not held
MINUTE_S, HOUR_S, DAY_S = 60, 3600, 86400


@click.command()
@click.argument("nodes", metavar="[NODESET]", required=False)
@click.option("--cached", is_flag=True, help="Ask no node: compare what was collected last, and record nothing.")
@width_option
@timeout_option
@images_option
@json_option
@click.pass_obj
def drift(
    root: Path, *, nodes: str | None, cached: bool, width: int, timeout_s: float, hash_images: bool, as_json: bool
) -> None:
    """Compare nodes with the locks that they run.

    Collects first, unless --cached. NODESET: default every node that an environment is for.
    Packages, holds, kernel and its command line, loaded driver, files, units, image; nothing is changed, and no
    node becomes verified by it (that is `bedplate verify`).
    Exit code 5: a node differs; 4: something of a node is not known: it did not answer, was never collected, or
    changed after it was.

    \b
    Examples:
      bedplate drift
      bedplate drift n[1-3] --cached --json
    """
    site = open_site(root)
    names = node_names(site, nodes, said="NODESET") if nodes else _covered(site)
    if cached and hash_images:
        raise BadInput("--hash-images asks nodes, --cached asks none: leave one out")
    site.refuse_example("compare nodes")
    if not cached:
        gather(site, names, width=width, timeout_s=timeout_s, hash_images=hash_images)
    found = held(site, names)
    event = None
    if not cached:
        with Ledger.open(site.ledger_url) as ledger:
            event = ledger.append(summary(found))[0].id
    now = datetime.now(UTC)
    if as_json:
        counts = {verdict: sum(h.comparison.verdict == verdict for h in found) for verdict in VERDICTS}
        document = {"nodes": {h.comparison.node: _document(h, now) for h in found}, "counts": counts}
        print_json(document | {"cached": cached, "event": event})
    else:
        _show(found, now)
    _end(found)


def _covered(site: Site) -> list[str]:
    """Every node that an environment is for."""
    kinds = {kind for name in site.environment_names() for kind in site.environment(name).kinds}
    names = [node.name for node in site.fleet.nodes_of(kinds)]
    if not names:
        raise BadInput(f"{site.fleet_path} has no node that an environment is for: nothing was compared")
    return names


def _show(found: Sequence[Held], now: datetime) -> None:
    told = groups(h.comparison for h in found)
    if told:
        print_table(["layer", "nodes", "item", "lock says", "node says"], _rows(told))
    counts = {verdict: [h.comparison.node for h in found if h.comparison.verdict == verdict] for verdict in VERDICTS}
    words = {"none": "as their locks say", "drift": "differ", "unknown": "not known"}
    click.echo(
        f"{len(found)} nodes: "
        + "; ".join(f"{len(names)} {words[verdict]} ({fold(names)})" for verdict, names in counts.items() if names)
    )
    if times := sorted(h.collected_at for h in found if h.collected_at):
        oldest = [h.comparison.node for h in found if h.collected_at == times[0]]
        click.echo(f"facts: collected {_ago(times[-1], now)}; the oldest {_ago(times[0], now)} ({fold(oldest)})")


def _rows(told: Sequence[Group]) -> list[tuple[str, ...]]:
    rows: list[tuple[str, ...]] = []
    alike: dict[tuple[str, ...], int] = {}
    for group in told:
        # 2,000 packages that are not held are one finding; --json has each of them.
        key = (str(group.layer), group.item.partition(" ")[0], group.folded, str(group.known))
        alike[key] = alike.get(key, 0) + 1
        if alike[key] <= ALIKE_SHOWN:
            found = group.found if group.known else f"not known: {group.found}"
            rows.append((str(group.layer or "-"), group.folded, group.item, _short(group.wanted), _short(found)))
    for (layer, word, nodes, _), count in alike.items():
        if count > ALIKE_SHOWN:
            rows.append((layer, nodes, f"{word} …", "", f"and {count - ALIKE_SHOWN} more (--json has them)"))
    order = {row[0]: index for index, row in reversed(list(enumerate(rows)))}
    return sorted(rows, key=lambda row: order[row[0]])


def _short(text: str) -> str:
    return text[:SHORT] if DIGEST.fullmatch(text) else text


def _ago(at: str, now: datetime) -> str:
    seconds = _age_s(at, now)
    for unit, name in ((DAY_S, "days"), (HOUR_S, "hours"), (MINUTE_S, "minutes")):
        if seconds >= 2 * unit:
            return f"{seconds // unit} {name} ago"
    return f"{seconds} s ago"


def _age_s(at: str, now: datetime) -> int:
    return max(0, round((now - datetime.fromisoformat(at)).total_seconds()))


def _document(one: Held, now: datetime) -> dict[str, Any]:
    return {
        "verdict": one.comparison.verdict, "environment": one.environment, "identity": one.identity,
        "collected_at": one.collected_at, "facts_event": one.event,
        "age_s": _age_s(one.collected_at, now) if one.collected_at else None,
        "drifts": [
            {"layer": str(d.layer), "item": d.item, "wanted": d.wanted, "found": d.found} for d in one.comparison.drifts
        ],
        "unknown": [
            {"layer": str(u.layer) if u.layer else None, "item": u.item, "why": u.why}
            for u in one.comparison.unanswered
        ],
    }  # fmt: skip


def _end(found: Sequence[Held]) -> None:
    """The exit code: what is not known stands before what differs."""
    unknown = [h.comparison.node for h in found if h.comparison.unanswered]
    differ = [h.comparison.node for h in found if h.comparison.drifts]
    if unknown:
        also = f"; {fold(differ)}: not what the lock says" if differ else ""
        raise NodesFailed(f"{fold(unknown)}: not everything is known{also}")
    if differ:
        raise DifferencesFound(f"{fold(differ)}: not what the lock says")
