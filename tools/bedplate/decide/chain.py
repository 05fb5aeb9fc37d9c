"""Judges the chain of events over what lies in the ledger, byte for byte.

Invariants:
- Every event that was edited, deleted, inserted or moved is named, as long as a later event still names the
  original. An unkeyed chain cannot see a cut tail, or a history rewritten from one event to the end: for
  that, heads that were noted elsewhere are compared (`heads`; decide/ledgeranchor.py has signed ones).
- One damage does not hide the next: judging goes on behind it.
- A neighbour is not blamed: an event whose content and hash disagree is named, its successor is not.

Example:
    list(check_chain([row_1, row_3]))  ->  [Damage(2, "is missing")]
"""

import json
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, replace
from functools import lru_cache
from hashlib import sha256 as hashed
from json import encoder
from typing import Any, NamedTuple

from bedplate.model.canonical import DIGEST, sha256
from bedplate.model.event import AT, GENESIS, SCHEMA, WRITER, Event, event_sha256, parse_body, parse_subjects

NOTED = "noted"  # the name of a head that a person gives


@dataclass(frozen=True)
class Damage:
    """One thing wrong: with which event, or with the store itself (event_id is None)."""

    event_id: int | None
    what: str

    def __str__(self) -> str:
        return f"{'store' if self.event_id is None else f'event {self.event_id}'}: {self.what}"


type Held = tuple[tuple[str, ...], dict[str, Any]]  # subjects and body of a row, parsed


class Row(NamedTuple):
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


def sound(row: Row) -> Event | None:
    """An event whose stored bytes hash to what was recorded; None where `judge` has something to say."""
    held = _held(row)
    return None if held is None else event_of(row, held)


def event_of(row: Row, held: Held) -> Event:
    """The event that a sound row is, from what `check_chain` told of it."""
    assert row.actor and row.at and row.kind and row.body_sha256 and row.previous and row.sha256  # noqa: S101, PT018
    subjects, body = held
    return Event(
        id=row.id, at=row.at.decode(), actor=_text(row.actor), kind=_text(row.kind), subjects=subjects,
        environment=None if row.environment is None else _text(row.environment), body=body,
        body_sha256=row.body_sha256.decode(), previous=row.previous.decode(), sha256=row.sha256.decode(),
    )  # fmt: skip


def _held(row: Row) -> Held | None:
    """Subjects and body of an event that is what was recorded; None where `judge` has something to say.

    Of a million events this is the way of all but the damaged ones: what was hashed is put together from the stored
    bytes instead of being parsed and written anew.
    """
    number, at, actor, kind, subjects, environment, body, body_sha256, previous, recorded = row
    if at is None or actor is None or kind is None or subjects is None or body is None or previous is None:
        return None
    try:
        digest = b"sha256:" + hashed(body).hexdigest().encode()
        of = b"null" if environment is None else b'"%b"' % environment
        said = (
            b'{"actor":%b,"at":"%b","body_sha256":"%b","environment":%b,"id":%d,"kind":"%b","previous":"%b",'
            b'"schema":%d,"subjects":%b}' % (_quoted(actor), at, digest, of, number, kind, previous, SCHEMA, subjects)
        )
        if recorded != b"sha256:" + hashed(said).hexdigest().encode() or body_sha256 != digest:
            return None
        text = body.decode()
        document, end = SCAN(text, 0)
        names = _subjects(subjects)
        # Keys beyond ASCII RFC 8785 orders in its own way: such a body is for judge to say.
        if end != len(text) or "".join(WRITE(document, 0)) != text or type(document) is not dict:
            return None
        if not AT.fullmatch(at.decode()):
            return None
    except (ValueError, StopIteration, RecursionError):
        return None
    return names, document


def _encoder() -> Callable[[object, int], Iterable[str]]:
    """WRITER's own encoder, made once: json makes one for each call, which takes longer than the encoding."""
    made = encoder.c_make_encoder  # type: ignore[attr-defined]
    if made is None:  # a Python without json's C part
        return lambda document, _: (WRITER.encode(document),)
    return made(  # type: ignore[no-any-return]
        None, WRITER.default, encoder.encode_basestring, None, WRITER.key_separator, WRITER.item_separator, True, False,
        False,
    )  # fmt: skip


SCAN = json.JSONDecoder().scan_once  # type: ignore[attr-defined]
WRITE = _encoder()


@lru_cache(maxsize=1024)
def _quoted(raw: bytes) -> bytes:
    return WRITER.encode(raw.decode()).encode()


@lru_cache(maxsize=16384)
def _subjects(raw: bytes) -> tuple[str, ...]:
    return parse_subjects(raw)


def check_chain(
    rows: Iterable[Row | Unreadable], *, heads: Iterable[tuple[int, str, str]] = (),
    told: Callable[[Row, Held], None] | None = None,
) -> Iterator[Damage]:  # fmt: skip
    """Every damage of a ledger; rows: all of them, in the order of their ids.

    heads: id, sha256 and name of each head that was noted elsewhere; id 0 says "there was nothing".
    told: is told every event that is what was recorded, in order.
    """
    noted: dict[int, list[tuple[str, str]]] = {}
    for number, digest, name in heads:
        noted.setdefault(number, []).append((digest, name))
    last = 0
    links: frozenset[bytes] | None = frozenset({GENESIS.encode()})  # what the next may name; None: not known
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
        held, wrong, own = _looked_at(row)
        yield from wrong
        if told is not None and held is not None:
            told(row, held)
        if in_order and links is not None and row.previous not in links:
            yield Damage(row.id, _misfit(row, links))
        if in_order:
            yield from _rewritten(row, noted.pop(row.id, ()))
            last, links = row.id, own
    if far := max((number for number in noted if number > last), default=0):
        name = noted[far][0][1]
        has = "" if name == NOTED else f", {name} has event {far}"
        yield Damage(last + 1, f"{_missing(last + 1, far)}: the tail was cut off behind event {last}{has}")


def _looked_at(row: Row) -> tuple[Held | None, list[Damage], frozenset[bytes]]:
    """What a row holds if it is sound, what is wrong with it if not, and what its successor may name."""
    held = _held(row)
    if held is not None:
        return held, [], frozenset({row.sha256 or b""})
    judged = judge(row)
    wrong = [Damage(row.id, what) for what in judged.wrong]
    if judged.event is not None and not wrong:
        held = judged.event.subjects, dict(judged.event.body)
    return held, wrong, _links(row, judged)


def _rewritten(row: Row, noted: Iterable[tuple[str, str]]) -> Iterator[Damage]:
    for digest, name in noted:
        if _shown(row.sha256) != digest:
            yield Damage(row.id, f"is {_shown(row.sha256)}, {name} was {digest}: history was rewritten")


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


@lru_cache(maxsize=4096)
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
