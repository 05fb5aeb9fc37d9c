"""Judges the chain of events over what lies in the ledger, byte for byte.

Invariants:
- Every event that was edited, deleted, inserted or moved is named, as long as a later event still names the
  original. An unkeyed chain cannot see a cut tail, or a history rewritten from one event to the end: for
  that, a head that was noted elsewhere is compared (`expect_head`).
- One damage does not hide the next: judging goes on behind it.
- A neighbour is not blamed: an event whose content and hash disagree is named, its successor is not.

Example:
    list(check_chain([row_1, row_3]))  ->  [Damage(2, "is missing")]
"""

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, replace

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
    """An event as it is stored: every column as its bytes, nothing decoded; None where SQL says NULL."""

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
    """Events that the store could not hand out, first to last, and what it said."""

    first: int
    last: int
    why: str


@dataclass(frozen=True)
class Judged:
    """An event from its stored bytes (None where they say none), what is wrong with it, and its true hash."""

    event: Event | None
    wrong: tuple[str, ...]
    sha256: str | None


def judge(row: Row) -> Judged:
    """Decode one event and compare it with its own two hashes; its place in the chain is check_chain's."""
    wrong: list[str] = []
    at = _parsed("at", row.at, _text, wrong)
    actor = _parsed("actor", row.actor, _text, wrong)
    kind = _parsed("kind", row.kind, _text, wrong)
    subjects = _parsed("subjects", row.subjects, parse_subjects, wrong)
    environment = None if row.environment is None else _parsed("environment", row.environment, _digest, wrong)
    body = _parsed("body", row.body, parse_body, wrong)
    body_sha256 = _parsed("body_sha256", row.body_sha256, _digest, wrong)
    previous = _parsed("previous", row.previous, _digest, wrong)
    recorded = _parsed("sha256", row.sha256, _digest, wrong)
    if row.body is not None and body_sha256 is not None and sha256(row.body) != body_sha256:
        wrong.append(f"body was edited: it hashes to {sha256(row.body)}, recorded is {body_sha256}")
    if at is not None and not AT.fullmatch(at):
        wrong.append(f"at: {at!r} is no UTC time with microseconds")
    if at is None or actor is None or kind is None or subjects is None or body_sha256 is None or previous is None:
        return Judged(None, tuple(wrong), None)
    true = event_sha256(
        id=row.id, at=at, actor=actor, kind=kind, subjects=subjects, environment=environment,
        body_sha256=body_sha256, previous=previous,
    )  # fmt: skip
    if recorded is None or body is None:
        return Judged(None, tuple(wrong), true)
    if true != recorded:
        wrong.append(f"was edited: its fields hash to {true}, recorded is {recorded}")
    event = Event(
        id=row.id, at=at, actor=actor, kind=kind, subjects=subjects, environment=environment, body=body,
        body_sha256=body_sha256, previous=previous, sha256=recorded,
    )  # fmt: skip
    return Judged(event, tuple(wrong), true)


def check_chain(rows: Iterable[Row | Unreadable], *, expect_head: tuple[int, str] | None = None) -> Iterator[Damage]:
    """Every damage of a ledger; rows: all of them, in the order of their ids.

    expect_head: id and sha256 of a head that was noted elsewhere; (0, GENESIS) says "there was nothing".
    """
    last = 0
    links: frozenset[bytes] | None = frozenset({GENESIS.encode()})  # what the next may name; None: not known
    noted_seen = expect_head is None or expect_head == (0, GENESIS)
    for row in rows:
        first = row.first if isinstance(row, Unreadable) else row.id
        in_order = first > last
        if not in_order:
            yield Damage(first, f"stands behind event {last}: a duplicate, or out of order")
        elif first > last + 1:
            yield Damage(last + 1, _missing(last + 1, first - 1))
            links = None
        if isinstance(row, Unreadable):
            yield Damage(first, _unreadable(row))
            last, links = max(last, row.last), None
            continue
        judged = judge(row)
        yield from (Damage(row.id, what) for what in judged.wrong)
        if in_order and links is not None and row.previous not in links:
            yield Damage(row.id, _misfit(row, links))
        if expect_head is not None and row.id == expect_head[0]:
            noted_seen = True
            if _shown(row.sha256) != expect_head[1]:
                yield Damage(row.id, f"is {_shown(row.sha256)}, noted was {expect_head[1]}: history was rewritten")
        if in_order:
            last, links = row.id, _links(row, judged)
    if expect_head is not None and not noted_seen and expect_head[0] > last:
        yield Damage(last + 1, f"{_missing(last + 1, expect_head[0])}: the tail was cut off behind event {last}")


def judge_in_place(row: Row, before: Row | None, after: Row | None) -> Judged:
    """Judge one event, and whether its neighbours name each other; None: there is no such neighbour."""
    judged = judge(row)
    wrong = list(judged.wrong)
    if row.id == 1:
        links = frozenset({GENESIS.encode()})
    else:
        links = frozenset() if before is None else _links(before, judge(before))
    if row.id > 1 and before is None:
        wrong.append(f"its predecessor, event {row.id - 1}, is missing")
    elif row.previous not in links:
        wrong.append(_misfit(row, links))
    if after is not None and not judge(after).wrong and after.previous not in _links(row, judged):
        wrong.append(f"event {after.id} names {_shown(after.previous)} as its predecessor: one was replaced")
    return replace(judged, wrong=tuple(wrong))


def _links(row: Row, judged: Judged) -> frozenset[bytes]:
    """What a successor may name: the recorded hash, or the true one where that column was edited."""
    return frozenset({row.sha256 or b"", (judged.sha256 or "").encode()} - {b""})


def _misfit(row: Row, links: frozenset[bytes]) -> str:
    if row.id == 1:
        return f"names {_shown(row.previous)} as its predecessor, but it is the first"
    known = " or ".join(sorted(map(_shown, links)))
    return f"names {_shown(row.previous)} as its predecessor, event {row.id - 1} is {known}: one was replaced"


def _missing(first: int, last: int) -> str:
    return "is missing" if first == last else f"this and all up to event {last} are missing ({last - first + 1} events)"


def _unreadable(rows: Unreadable) -> str:
    reach = "" if rows.first == rows.last else f"to event {rows.last} "
    return f"{reach}cannot be read: {rows.why}"


def _shown(raw: bytes | None) -> str:
    return "nothing" if raw is None else raw.decode(errors="replace")


def _text(raw: bytes) -> str:
    return raw.decode()


def _digest(raw: bytes) -> str:
    text = raw.decode()
    if not DIGEST.fullmatch(text):
        raise ValueError(f"{text!r} is no digest (sha256: and 64 hex digits)")
    return text


def _parsed[T](name: str, raw: bytes | None, parse: Callable[[bytes], T], wrong: list[str]) -> T | None:
    if raw is None:
        wrong.append(f"{name}: is missing")
        return None
    try:
        return parse(raw)
    except UnicodeDecodeError as fault:
        wrong.append(f"{name}: not UTF-8 at byte {fault.start}")
    except ValueError as fault:
        wrong.append(f"{name}: {fault}")
    return None
