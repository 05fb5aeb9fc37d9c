"""Judges the chain of events over what lies in the ledger, byte for byte.

Invariants:
- Every event that was edited, deleted, inserted or moved is named, as long as a later event still names the
  original. An unkeyed chain cannot see a cut tail or a history rewritten from some event to the end: for that,
  a head noted elsewhere is compared (`expect_head`).
- One damage does not hide the next: judging goes on behind it.
- A neighbour is not blamed: an event whose content and hash disagree is named alone, its successor is not.
"""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Any

from bedplate.model.canonical import DIGEST, sha256
from bedplate.model.event import AT, GENESIS, Event, event_sha256, parse_body, parse_subjects


@dataclass(frozen=True)
class Damage:
    """One thing wrong: with which event, or with the store itself (event_id is None)."""

    event_id: int | None
    what: str

    def __str__(self) -> str:
        return f"{'store' if self.event_id is None else f'event {self.event_id}'}: {self.what}"


@dataclass(frozen=True)
class Row:
    """An event as it is stored: every column as its bytes, nothing decoded."""

    id: int
    at: bytes | None
    actor: bytes | None
    kind: bytes | None
    subjects: bytes | None
    environment: bytes | None
    body: bytes | None
    body_sha256: bytes | None
    previous: bytes | None
    sha256: bytes | None


@dataclass(frozen=True)
class Unreadable:
    """An event that the store could not hand out, and what it said."""

    id: int
    why: str


def decode(row: Row) -> tuple[Event | None, list[str]]:
    """An event from its stored bytes, and all that is wrong with it by itself.

    The event is None where a column cannot be decoded at all.
    """
    wrong: list[str] = []
    texts: dict[str, str | None] = {}
    for name in ("at", "actor", "kind", "environment", "body_sha256", "previous", "sha256"):
        raw: bytes | None = getattr(row, name)
        try:
            texts[name] = None if raw is None else raw.decode()
        except UnicodeDecodeError:
            wrong.append(f"{name} is not UTF-8")
        else:
            if raw is None and name != "environment":
                wrong.append(f"{name} is missing")
    subjects = _parsed("subjects", row.subjects, parse_subjects, wrong)
    body = _parsed("body", row.body, parse_body, wrong)
    if row.body is not None and texts.get("body_sha256") is not None:
        found = sha256(row.body)
        if found != texts["body_sha256"]:
            wrong.append(f"body was edited: its sha256 is {found}, recorded is {texts['body_sha256']}")
    if (
        subjects is None
        or any(texts.get(name) is None for name in texts if name != "environment")
        or len(texts) < 7
    ):  # noqa: PLR2004
        return None, wrong
    known = {name: text for name, text in texts.items() if text is not None}
    wrong += _field_faults(known)
    found = event_sha256(
        id=row.id, at=known["at"], actor=known["actor"], kind=known["kind"], subjects=subjects,
        environment=texts["environment"], body_sha256=known["body_sha256"], previous=known["previous"],
    )  # fmt: skip
    if found != known["sha256"]:
        wrong.append(f"was edited: its fields hash to {found}, recorded is {known['sha256']}")
    if body is None:
        return None, wrong
    event = Event(
        id=row.id, at=known["at"], actor=known["actor"], kind=known["kind"], subjects=subjects,
        environment=texts["environment"], body=body, body_sha256=known["body_sha256"],
        previous=known["previous"], sha256=known["sha256"],
    )  # fmt: skip
    return event, wrong


def check_chain(
    rows: Iterable[Row | Unreadable], *, expect_head: tuple[int, str] | None = None
) -> Iterator[Damage]:
    """Every damage of a ledger, in the order of its rows, which are those of the store by id."""
    last = 0
    links: set[bytes] | None = {
        GENESIS.encode()
    }  # what the next event may name; None: its predecessor is gone
    seen_head = expect_head is None or expect_head == (0, GENESIS)
    for row in rows:
        if row.id <= last:
            yield Damage(row.id, f"stands behind event {last}: a duplicate, or out of order")
            links = None
        elif row.id > last + 1:
            yield Damage(last + 1, _missing(last + 1, row.id - 1))
            links = None
        if isinstance(row, Unreadable):
            yield Damage(row.id, f"cannot be read: {row.why}")
            last, links = max(last, row.id), None
            continue
        event, wrong = decode(row)
        for what in wrong:
            yield Damage(row.id, what)
        if links is not None and row.previous not in links:
            named = (row.previous or b"").decode(errors="replace")
            yield Damage(
                row.id,
                f"names {named} as its predecessor, event {row.id - 1} is {_shown(links)}: one of the two was replaced"
                if row.id > 1
                else f"names {named} as its predecessor; the first event has none",
            )
        if expect_head is not None and row.id == expect_head[0]:
            seen_head = True
            if row.sha256 != expect_head[1].encode():
                found = (row.sha256 or b"").decode(errors="replace")
                yield Damage(row.id, f"is {found}, the noted head is {expect_head[1]}: history was rewritten")
        last, links = max(last, row.id), _links(row, event)
    if not seen_head and expect_head is not None:
        yield Damage(
            expect_head[0], f"is the noted head, but the ledger ends with event {last}: its tail was cut off"
        )


def _links(row: Row, event: Event | None) -> set[bytes]:
    """What a successor may name: the recorded hash, or, where that column was edited, the true one."""
    links = {row.sha256 or b""}
    if event is not None:
        links.add(_true_sha256(event).encode())
    return links


def _true_sha256(event: Event) -> str:
    return event_sha256(
        id=event.id, at=event.at, actor=event.actor, kind=event.kind, subjects=event.subjects,
        environment=event.environment, body_sha256=event.body_sha256, previous=event.previous,
    )  # fmt: skip


def _shown(links: set[bytes]) -> str:
    return " or ".join(sorted(link.decode(errors="replace") for link in links))


def _missing(first: int, last: int) -> str:
    return "is missing" if first == last else f"to event {last} are missing ({last - first + 1} events)"


def _field_faults(known: dict[str, str]) -> list[str]:
    wrong = [
        f"{name} is no digest: {known[name]!r}"
        for name in ("body_sha256", "previous", "sha256")
        if not DIGEST.fullmatch(known[name])
    ]
    if "environment" in known and not DIGEST.fullmatch(known["environment"]):
        wrong.append(f"environment is no identity: {known['environment']!r}")
    if not AT.fullmatch(known["at"]):
        wrong.append(f"at is no UTC time: {known['at']!r}")
    return wrong


def _parsed(name: str, raw: bytes | None, parse: Any, wrong: list[str]) -> Any:  # noqa: ANN401
    if raw is None:
        wrong.append(f"{name} is missing")
        return None
    try:
        return parse(raw)
    except ValueError as fault:
        wrong.append(f"{name}: {fault}")
        return None
