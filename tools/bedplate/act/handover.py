"""The record of a site, gathered for its handover document: from the ledger and the fleet alone, no node is asked."""

from collections.abc import Iterable, Mapping, Sequence

from bedplate.act.anchor import evidence
from bedplate.act.lock import RESOLVED, of_event
from bedplate.decide.acceptance import KINDS as ACCEPTANCES
from bedplate.decide.buildrecord import Stage
from bedplate.decide.checkpointmatrix import EVENT as MATRIX
from bedplate.decide.fold import node_names
from bedplate.decide.handoverrecord import Built, Record, Seen
from bedplate.decide.installation import Installation, after, standing
from bedplate.decide.ledgerfiles import ATTACHED, attached
from bedplate.decide.ledgerquestions import MADE, VERDICTS
from bedplate.decide.lockdoc import LockDocument
from bedplate.decide.netboot.protocol import KINDS as NETBOOT
from bedplate.decide.sitefiles import record_of
from bedplate.ledger import projection
from bedplate.ledger.store import Ledger
from bedplate.model.event import Event
from bedplate.sources.site import Site

ARCHIVE = ("archive.published", "archive.added")
IMPORTED = f"image.{Stage.IMPORTED}"
VERIFIED = "node.verified"


def gathered(site: Site, nodes: Sequence[str], seen: Mapping[str, Seen] | None = None) -> Record:
    """What the ledger says about nodes, and about every environment that one of them runs.

    seen: what nodes said they are; an event after the head that this finds is left out.
    """
    with Ledger.read(site.ledger_url) as book:
        world, head = projection.world(book), book.head()
        running = {state.runs for name in nodes if (state := world.state(name)).runs is not None}
        resolved = {str(event.environment): event for event in book.events(kinds=[RESOLVED])}
        locks = {identity: of_event(event) for identity, event in resolved.items() if identity in running}
        signed = evidence(site, book, ask_places=False).newest
        return Record(
            fleet=site.fleet, nodes=tuple(nodes), world=world, head=head,
            head_at=dict(book.moments(head[0], head[0])).get(head[0], "-")[:19].replace("T", " ") + "Z", locks=locks,
            resolved=resolved, builds=_builds(list(book.events(kinds=[IMPORTED])), locks),
            archive=tuple(book.events(kinds=ARCHIVE)), files=tuple(attached(book.events(kinds=[ATTACHED]))),
            installs=_installs(book.events(kinds=NETBOOT), nodes),
            seen={name: one for name, one in (seen or {}).items() if one.event <= head[0]},
            verified=_last(book.events(kinds=[VERIFIED]), nodes),
            acceptances=_last(book.events(kinds=ACCEPTANCES), nodes),
            verdicts=tuple(book.events(kinds=VERDICTS)), made=tuple(book.events(kinds=[MADE])),
            matrix=tuple(book.events(kinds=[MATRIX])),
            anchored=None if signed is None else f"event {signed.id} by {signed.principal}, {signed.at[:19]}Z",
            unknown_locks=frozenset(str(identity) for identity in running - locks.keys()),
        )  # fmt: skip


def verifications(record: Record) -> list[Event]:
    """The last verification of each node of a record that is one of what it runs."""
    last = record.verified
    return [last[name] for name in sorted(last) if last[name].environment == record.world.state(name).runs]


def _builds(events: Sequence[Event], locks: Mapping[str, LockDocument]) -> dict[str, Built]:
    """The build record of each lock's image; of two that made the same bytes the later."""
    found = {}
    for identity, lock in locks.items():
        for event in events:
            record = record_of([event], lock)
            if record is not None:
                found[identity] = Built(event.id, record)
    return found


def _installs(events: Iterable[Event], nodes: Sequence[str]) -> dict[str, Installation]:
    wanted = set(nodes)
    found: dict[str, Installation] = {}
    for event in events:
        found |= after(found, event, wanted)
    return {name: one for name, each in found.items() if (one := standing(each)) is not None}


def _last(events: Iterable[Event], nodes: Sequence[str]) -> dict[str, Event]:
    """The last event of each node."""
    wanted = set(nodes)
    return {name: event for event in events for name in node_names(event) if name in wanted}
