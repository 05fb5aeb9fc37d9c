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
import re
from collections.abc import Callable, Container, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache, partial
from hashlib import sha256 as hashed
from json import encoder
from typing import Any, NamedTuple

from bedplate.model.canonical import DIGEST, sha256
from bedplate.model.event import AT, GENESIS, SCHEMA, WRITER, Event, event_sha256, no_number, parse_body, parse_subjects

NOTED = "noted"  # the name of a head that a person gives


@dataclass(frozen=True)
class Damage:
    """One thing wrong: with which event, or with the store itself (event_id is None)."""

    event_id: int | None
    what: str

    def __str__(self) -> str:
        return f"{'store' if self.event_id is None else f'event {self.event_id}'}: {self.what}"


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


# Of a tuple that was read; Row._make does the same in Python.
as_row: Callable[[Sequence[Any]], Row] = partial(tuple.__new__, Row)


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
    return None if held is None else _event(row, *held)


def unjudged(row: Row) -> Event:
    """The event that a row says: for one that was judged, or is while this is asked.

    Raises:
        ValueError: it says none.
    """
    try:
        return _event(row, _subjects(row.subjects or b""), SCAN((row.body or b"").decode(), 0)[0])
    except (AttributeError, StopIteration, RecursionError) as fault:
        raise ValueError(f"event {row.id}: is none") from fault


def _event(row: Row, subjects: tuple[str, ...], body: dict[str, Any]) -> Event:
    number, at, actor, kind, _, environment, _, body_sha256, previous, recorded = row
    # Not Event(...): a frozen dataclass sets its members one by one, which takes four times as long.
    event = object.__new__(Event)
    event.__dict__.update(
        id=number, at=at.decode(), actor=_text(actor), kind=_text(kind), subjects=subjects,  # type: ignore[union-attr]
        environment=None if environment is None else _text(environment), body=body,
        body_sha256=body_sha256.decode(), previous=previous.decode(), sha256=recorded.decode(),  # type: ignore[union-attr]
    )  # fmt: skip
    return event


def _held(row: Row) -> tuple[tuple[str, ...], dict[str, Any]] | None:
    """Subjects and body of an event that is what was recorded; None where `judge` has something to say.

    Of a million events this is the way of all but the damaged ones: what was hashed is put together from the stored
    bytes instead of being parsed and written anew.
    """
    number, at, actor, kind, subjects, environment, body, body_sha256, previous, recorded = row
    if at is None or actor is None or kind is None or subjects is None or body is None or previous is None:
        return None
    try:
        digest = b"sha256:" + hashed(body).hexdigest().encode()
        said = SAID % (
            _quoted(actor), at, digest, b"null" if environment is None else b'"%b"' % environment, number, kind,
            previous, subjects,
        )  # fmt: skip
        if recorded != b"sha256:" + hashed(said).hexdigest().encode() or body_sha256 != digest or not AT_BYTES(at):
            return None
        text = body.decode()
        document, end = SCAN(text, 0)
        # Keys beyond ASCII RFC 8785 orders in its own way: such a body is for judge to say.
        if "".join(WRITE(document, 0)) != text or type(document) is not dict or end != len(text):
            return None
        return _subjects(subjects), document
    except (ValueError, StopIteration, RecursionError):
        return None


def _encoder() -> Callable[[object, int], Iterable[str]]:
    """WRITER's own encoder, made once: json makes one for each call, which takes longer than the encoding."""
    made = encoder.c_make_encoder  # type: ignore[attr-defined]
    if made is None:  # a Python without json's C part
        return lambda document, _: (WRITER.encode(document),)
    return made(  # type: ignore[no-any-return]
        None, WRITER.default, encoder.encode_basestring, None, WRITER.key_separator, WRITER.item_separator, True, False,
        False,
    )  # fmt: skip


# Integers are read by the C part alone: READER's own function doubles the time of all of it.
SCAN = json.JSONDecoder(parse_float=no_number, parse_constant=no_number).scan_once  # type: ignore[attr-defined]
AT_BYTES = re.compile(AT.pattern.encode()).fullmatch
# What event_sha256 hashes, as bytes.
SAID = (
    b'{"actor":%%b,"at":"%%b","body_sha256":"%%b","environment":%%b,"id":%%d,"kind":"%%b","previous":"%%b",'
    b'"schema":%d,"subjects":%%b}' % SCHEMA
)
WRITE = _encoder()


@lru_cache(maxsize=1024)
def _quoted(raw: bytes) -> bytes:
    return WRITER.encode(raw.decode()).encode()


@lru_cache(maxsize=16384)
def _subjects(raw: bytes) -> tuple[str, ...]:
    return parse_subjects(raw)


def check_chain(rows: Iterable[Row | Unreadable], *, heads: Iterable[tuple[int, str, str]] = ()) -> Iterator[Damage]:
    """Every damage of a ledger; rows: all of them, in the order of their ids.

    heads: id, sha256 and name of each head that was noted elsewhere; id 0 says "there was nothing".
    """
    noted: dict[int, list[tuple[str, str]]] = {}
    for number, digest, name in heads:
        noted.setdefault(number, []).append((digest, name))
    last = 0
    links: tuple[bytes, ...] | None = (GENESIS.encode(),)  # what the next may name; None: not known
    for row in rows:
        # Of a million events this is the way of all but the damaged ones.
        if type(row) is Row and row.id == last + 1 and links and row.previous in links and _plain(row, noted):
            last, links = row.id, (row.sha256 or b"",)
            continue
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
        wrong, own = _looked_at(row)
        yield from wrong
        if in_order and links is not None and row.previous not in links:
            yield Damage(row.id, _misfit(row, links))
        if in_order:
            yield from _rewritten(row, noted.pop(row.id, ()))
            last, links = row.id, own
    yield from _cut(noted, last)


def _plain(row: Row, noted: Container[int]) -> bool:
    """Whether there is nothing to say of a row that follows the one before it."""
    return row.id not in noted and _held(row) is not None


def _cut(noted: Mapping[int, Sequence[tuple[str, str]]], last: int) -> Iterator[Damage]:
    """What heads that were noted elsewhere say of a tail that is not there."""
    if far := max((number for number in noted if number > last), default=0):
        name = noted[far][0][1]
        has = "" if name == NOTED else f", {name} has event {far}"
        yield Damage(last + 1, f"{_missing(last + 1, far)}: the tail was cut off behind event {last}{has}")


def _looked_at(row: Row) -> tuple[list[Damage], tuple[bytes, ...]]:
    """What is wrong with a row, and what its successor may name."""
    if _held(row) is not None:
        return [], (row.sha256 or b"",)
    judged = judge(row)
    return [Damage(row.id, what) for what in judged.wrong], _links(row, judged)


def _rewritten(row: Row, noted: Iterable[tuple[str, str]]) -> Iterator[Damage]:
    for digest, name in noted:
        if _shown(row.sha256) != digest:
            yield Damage(row.id, f"is {_shown(row.sha256)}, {name} was {digest}: history was rewritten")


def judge_in_place(row: Row, before: Row | None, after: Row | None) -> Judged:
    """Judge one event, and whether its neighbours name each other; None: there is no such neighbour."""
    judged = judge(row)
    wrong = list(judged.wrong)
    if row.id == 1:
        links: tuple[bytes, ...] = (GENESIS.encode(),)
    else:
        links = () if before is None else _links(before, judge(before))
    if row.id > 1 and before is None:
        wrong.append(f"its predecessor, event {row.id - 1}, is missing")
    elif row.previous not in links:
        wrong.append(_misfit(row, links))
    if after is not None and not judge(after).wrong and after.previous not in _links(row, judged):
        wrong.append(f"event {after.id} names {_shown(after.previous)} as its predecessor: one was replaced")
    return replace(judged, wrong=tuple(wrong))


def _links(row: Row, judged: Judged) -> tuple[bytes, ...]:
    """What a successor may name: the recorded hash, or the true one where that column was edited."""
    return tuple({row.sha256 or b"", (judged.sha256 or "").encode()} - {b""})


def _misfit(row: Row, links: tuple[bytes, ...]) -> str:
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
