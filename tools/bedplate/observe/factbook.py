"""The facts of nodes in the ledger: written so that it stays small, read back as they were said.

- A node that says what it said before, but for the time, is a line that names the event with its facts.
- A part of 2 KiB or more (its packages, its modules) is recorded once for all nodes that have the same, as an event
  `facts.seen` of its own; the facts name it by its sha256.
- So 660 nodes of one environment cost some megabytes when they change, and 400 bytes a node when they do not.

    node.collected   {"facts": {…}, "shared": {"packages": "sha256:…"}, "facts_sha256": …, "time": …}
    node.collected   {"same_as": 4711, "facts_sha256": …, "time": …}
    node.uncollected {"why": …}
"""

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from bedplate.ledger.store import Ledger
from bedplate.model.canonical import sha256
from bedplate.model.event import WRITER, Draft, Event
from bedplate.model.facts import Facts, Package, Unknown, facts
from bedplate.model.faults import BedplateError
from bedplate.observe.collect import Collected

COLLECTED, LOST, SEEN = "node.collected", "node.uncollected", "facts.seen"
SHARED_BYTES = 2048
WINDOW = 4096  # events looked at first, from the end
LONGEST_WHY = 2000


@dataclass(frozen=True)
class Entry:
    """The newest of a node in the ledger.

    collected: the last time that it said its facts; lost: a later attempt, in vain.
    """

    collected: Event | None = None
    lost: Event | None = None


def newest(ledger: Ledger, nodes: Collection[str]) -> dict[str, Entry]:
    """The newest entry of each node that has one; read from the end, for what is newest is near it."""
    found: dict[str, Entry] = {}
    waiting = set(nodes)
    high, width = ledger.head()[0], WINDOW
    while waiting and high > 0:
        low = max(0, high - width)
        here: dict[str, Entry] = {}
        for event in ledger.events(after=low, kinds=[COLLECTED, LOST]):
            if event.id > high:
                break
            for name in waiting.intersection(subject.removeprefix("node:") for subject in event.subjects):
                before = here.get(name, Entry())
                here[name] = Entry(event) if event.kind == COLLECTED else Entry(before.collected, event)
        for name, entry in here.items():
            # What a later window found in vain is younger than what this one has.
            found[name] = Entry(entry.collected, found.get(name, Entry()).lost or entry.lost)
        waiting -= {name for name, entry in here.items() if entry.collected}
        high, width = low, 2 * width
    return found


def record(ledger: Ledger, collected: Sequence[Collected]) -> dict[str, Event]:
    """Append what came of nodes, in one transaction; node -> its event."""
    before = newest(ledger, [one.node for one in collected])
    drafts: list[Draft] = []
    shared: dict[str, Draft] = {}
    known = {digest for entry in before.values() for digest in _shared(entry.collected)}
    for one in collected:
        subjects = (f"node:{one.node}",)
        if one.facts is None:
            drafts.append(Draft(LOST, subjects, {"why": (one.why or "")[:LONGEST_WHY]}))
            continue
        held, parts = split(one.facts.document)
        shared |= {digest: draft for digest, draft in parts.items() if digest not in known}
        said = {"facts_sha256": _sha256(held), "time": one.facts.document["time"]}
        if one.clock_off_ms:
            said["clock_off_ms"] = one.clock_off_ms
        last = before.get(one.node, Entry()).collected
        if last is not None and last.body.get("facts_sha256") == said["facts_sha256"]:
            drafts.append(Draft(COLLECTED, subjects, said | {"same_as": last.body.get("same_as", last.id)}))
        else:
            drafts.append(Draft(COLLECTED, subjects, said | held))
    new = [draft for digest, draft in shared.items() if not _is_there(ledger, digest)]
    events = ledger.append(*new, *drafts)[len(new) :]
    return {one.node: event for one, event in zip(collected, events, strict=True)}


def split(document: Mapping[str, Any]) -> tuple[dict[str, dict[str, Any]], dict[str, Draft]]:
    """What an event holds of facts (all but their time, large parts by their sha256); and those parts, by it."""
    held: dict[str, dict[str, Any]] = {"facts": {}, "shared": {}}
    parts: dict[str, Draft] = {}
    for name, value in document.items():
        data = WRITER.encode(value).encode()
        if name == "time":
            continue
        if len(data) < SHARED_BYTES:
            held["facts"][name] = value
            continue
        digest = sha256(data)
        held["shared"][name] = digest
        parts[digest] = Draft(SEEN, (f"facts:{digest}",), {"part": name, "value": value})
    return held, parts


def read(ledger: Ledger, entries: Mapping[str, Entry]) -> dict[str, Facts]:
    """The facts of nodes as they were said last; nodes without any are left out.

    Raises:
        BedplateError: the ledger lacks what it names, or holds what are no facts.
    """
    parts: dict[str, Any] = {}
    packages: dict[str, tuple[Package, ...] | Unknown] = {}  # checked once for all nodes that have the same
    found: dict[str, Facts] = {}
    for node, entry in entries.items():
        if entry.collected is None:
            continue
        event = _whole(ledger, entry.collected)
        document = {**event.body["facts"], "time": entry.collected.body["time"]}
        for name, digest in event.body["shared"].items():
            if digest not in parts:
                parts[digest] = _part(ledger, digest, event)
            document[name] = parts[digest]
        digest = event.body["shared"].get("packages", "")
        found[node] = facts(document, f"{node}, event {event.id}", packages=packages.get(digest))
        if digest:
            packages[digest] = found[node].packages
    return found


def _whole(ledger: Ledger, event: Event) -> Event:
    """The event that holds the facts which this one names."""
    number = event.body.get("same_as")
    if number is None:
        return event
    judged = ledger.event(number)
    if judged is None or judged.event is None or judged.wrong or "facts" not in judged.event.body:
        raise BedplateError(
            f"ledger: event {event.id} names event {number}, which has no facts (run: bedplate ledger verify)"
        )
    return judged.event


def _part(ledger: Ledger, digest: str, event: Event) -> Any:
    for seen in ledger.events(kinds=[SEEN], subject=f"facts:{digest}"):
        if sha256(WRITER.encode(seen.body["value"]).encode()) == digest:
            return seen.body["value"]
    raise BedplateError(f"ledger: event {event.id} names facts {digest}, which it does not hold (collect again)")


def _is_there(ledger: Ledger, digest: str) -> bool:
    return any(True for _ in ledger.events(kinds=[SEEN], subject=f"facts:{digest}"))


def _shared(event: Event | None) -> Iterable[str]:
    """The parts that an event names; the ledger has them, for they were appended before it."""
    return (event.body.get("shared") or {}).values() if event else ()


def _sha256(document: Mapping[str, Any]) -> str:
    return sha256(WRITER.encode(document).encode())
