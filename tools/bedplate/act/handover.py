"""The record of a site, gathered for its handover document: from the ledger and the fleet alone, no node is asked."""

from collections.abc import Sequence

from bedplate.act.anchor import evidence
from bedplate.act.lock import RESOLVED, of_event
from bedplate.decide.handover import Record
from bedplate.decide.ledgerfiles import ATTACHED, attached
from bedplate.decide.ledgerquestions import VERDICTS
from bedplate.ledger import projection
from bedplate.ledger.store import Ledger
from bedplate.model.event import Event
from bedplate.sources.site import Site


def gathered(site: Site, nodes: Sequence[str]) -> Record:
    """What the ledger says about nodes, and about every environment that one of them runs."""
    with Ledger.read(site.ledger_url) as book:
        world, head = projection.world(book), book.head()
        running = {state.runs for name in nodes if (state := world.state(name)).runs is not None}
        locks = {
            str(event.environment): of_event(event)
            for event in book.events(kinds=[RESOLVED])
            if event.environment in running
        }
        signed = evidence(site, book, ask_places=False).newest
        return Record(
            fleet=site.fleet, nodes=tuple(nodes), world=world, head=head,
            head_at=dict(book.moments(head[0], head[0])).get(head[0], "-")[:19].replace("T", " ") + "Z", locks=locks,
            files=tuple(attached(book.events(kinds=[ATTACHED]))), verdicts=tuple(book.events(kinds=VERDICTS)),
            anchored=None if signed is None else f"event {signed.id} by {signed.principal}, {signed.at[:19]}Z",
            unknown_locks=frozenset(str(identity) for identity in running - locks.keys()),
        )  # fmt: skip


def verifications(site: Site, record: Record) -> list[Event]:
    """The last verification of each node of a record that is one of what it runs."""
    last: dict[str, Event] = {}
    with Ledger.read(site.ledger_url) as book, projection.projection(book) as kept:
        found = book.chosen({kept.latest(name) for name in record.nodes} - {0})
        for name in record.nodes:
            event = found.get(kept.latest(name))
            if event is not None and event.kind == "node.verified":
                last[name] = event
    return [last[name] for name in sorted(last)]
