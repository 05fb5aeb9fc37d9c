"""An event: something that happened, with proof.

Invariants:
- An event's sha256 covers its id, time, actor, kind, subjects, environment, the sha256 of its body's
  stored bytes, and the sha256 of its predecessor. To change one event unseen, every later one must change.
- A body is a JSON object stored as its canonical bytes (RFC 8785): the bytes that were hashed are the bytes
  that lie in the ledger. Floats have no place in it: two programs may print the same one differently.
- The order of events is their id. Time is what the clock said; a clock may go backwards.
"""

import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from bedplate.model.canonical import DIGEST, canonical, sha256

SCHEMA = 1
GENESIS = "sha256:" + "0" * 64  # what the first event names as its predecessor
AT = re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{6}Z")
KIND = re.compile(r"[a-z][a-z0-9_-]*(\.[a-z0-9_-]+)*")
SUBJECT = re.compile(r"[a-z][a-z0-9_-]*:[^\x00-\x1f\x7f]+")
ACTOR = re.compile(r"[^\x00-\x1f\x7f]+")
INTEGER_MAX = 2**53 - 1  # RFC 8785: what every JSON reader holds exactly
DEPTH_MAX = 64  # levels of a body: far above any record, far below any reader's stack


@dataclass(frozen=True)
class Draft:
    """An event before it is recorded.

    kind: `rollout.started`; subjects: `node:n1`, `environment:A`; environment: an identity, `sha256:…`.
    """

    kind: str
    subjects: tuple[str, ...]
    body: Mapping[str, Any]
    environment: str | None = None


@dataclass(frozen=True)
class Event:
    """A recorded event; `at` is UTC with microseconds: 2026-11-02T09:14:03.000017Z."""

    id: int
    at: str
    actor: str
    kind: str
    subjects: tuple[str, ...]
    environment: str | None
    body: Mapping[str, Any]
    body_sha256: str
    previous: str
    sha256: str


def body_bytes(body: Mapping[str, Any]) -> bytes:
    """The canonical bytes of a body.

    Raises:
        ValueError: it is no JSON object that every reader reads alike; the message names the place.
    """
    if not isinstance(body, Mapping):
        raise ValueError(f"body: {type(body).__name__} is no JSON object")  # noqa: TRY004
    return _canonical(_exact(body, "body", 1))


def parse_body(data: bytes) -> dict[str, Any]:
    """A body from its stored bytes.

    Raises:
        ValueError: the bytes are not the canonical form of a JSON object.
    """
    document = _parse(data)
    if not isinstance(document, dict):
        raise ValueError("not a JSON object")  # noqa: TRY004  the data is wrong, not the call
    return document


def subjects_bytes(subjects: Sequence[str]) -> bytes:
    return _canonical(list(subjects))


def parse_subjects(data: bytes) -> tuple[str, ...]:
    """Subjects from their stored bytes.

    Raises:
        ValueError: the bytes are not the canonical form of a JSON array of strings.
    """
    document = _parse(data)
    if not isinstance(document, list) or not all(isinstance(item, str) for item in document):
        raise ValueError("not a JSON array of strings")
    return tuple(document)


def event_sha256(
    *, id: int, at: str, actor: str, kind: str, subjects: Sequence[str], environment: str | None,  # noqa: A002
    body_sha256: str, previous: str,
) -> str:  # fmt: skip
    """The sha256 of an event: of the canonical form of all that it says, and of what precedes it."""
    return sha256(_canonical({
        "schema": SCHEMA, "id": id, "at": at, "actor": actor, "kind": kind, "subjects": list(subjects),
        "environment": environment, "body_sha256": body_sha256, "previous": previous,
    }))  # fmt: skip


def seal(draft: Draft, data: bytes, *, id: int, at: str, actor: str, previous: str) -> Event:  # noqa: A002
    """The event that a checked draft becomes behind its predecessor; data: the bytes of its body.

    Raises:
        ValueError: time or actor are malformed.
    """
    if not AT.fullmatch(at):
        raise ValueError(f"at: {at!r} is no UTC time with microseconds")
    if not ACTOR.fullmatch(actor):
        raise ValueError(f"actor: {actor!r} is empty or holds control characters")
    subjects, hashed = tuple(draft.subjects), sha256(data)
    digest = event_sha256(
        id=id, at=at, actor=actor, kind=draft.kind, subjects=subjects, environment=draft.environment,
        body_sha256=hashed, previous=previous,
    )  # fmt: skip
    return Event(
        id=id, at=at, actor=actor, kind=draft.kind, subjects=subjects, environment=draft.environment,
        body=json.loads(data), body_sha256=hashed, previous=previous, sha256=digest,
    )  # fmt: skip


def check_draft(draft: Draft) -> None:
    """Refuse a draft whose kind, subjects or environment are malformed (its body: body_bytes).

    Raises:
        ValueError: the message names the member that is wrong.
    """
    if not KIND.fullmatch(draft.kind):
        raise ValueError(f"kind: {draft.kind!r} is not lower-case words joined by dots")
    if isinstance(draft.subjects, str):
        raise ValueError(f"subjects: {draft.subjects!r} is one string, not several")  # noqa: TRY004
    for subject in draft.subjects:
        if not isinstance(subject, str) or not SUBJECT.fullmatch(subject):
            raise ValueError(f"subjects: {subject!r} has no prefix such as node: or environment:")
    if draft.environment is not None and not DIGEST.fullmatch(draft.environment):
        raise ValueError(f"environment: {draft.environment!r} is no identity (sha256: and 64 hex digits)")


def _exact(value: object, place: str, depth: int) -> object:
    """A value as the JSON writer takes it; what every reader would not read alike is refused, with its place."""
    if depth > DEPTH_MAX:
        raise ValueError(f"{place}: more than {DEPTH_MAX} levels deep")
    if isinstance(value, Mapping):
        return {_key(key, place): _exact(item, f"{place}.{key}", depth + 1) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [_exact(item, f"{place}[{index}]", depth + 1) for index, item in enumerate(value)]
    if value is None or isinstance(value, bool):
        return value
    if isinstance(value, str):
        return _text(value, place)
    if isinstance(value, int):
        if abs(value) > INTEGER_MAX:
            raise ValueError(f"{place}: {value} is beyond 2^53 - 1: record it as a string")
        return value
    if isinstance(value, float):
        raise ValueError(f"{place}: {value!r} is a float: record an integer with its unit, or a string")  # noqa: TRY004
    raise ValueError(f"{place}: {type(value).__name__} has no JSON form")


def _key(key: object, place: str) -> str:
    if not isinstance(key, str):
        raise ValueError(f"{place}: the key {key!r} is no string")  # noqa: TRY004
    return _text(key, place)


def _text(value: str, place: str) -> str:
    try:
        value.encode()
    except UnicodeEncodeError as fault:
        raise ValueError(f"{place}: {value!r} is not UTF-8 text") from fault
    return value


def _canonical(document: object) -> bytes:
    """RFC 8785 of a document without floats: model.canonical's bytes, mostly by the C writer, 20 times faster.

    They differ only in the order of keys outside ASCII: Python sorts by code point, RFC 8785 by UTF-16 unit.
    """
    text = WRITER.encode(document)
    return text.encode() if text.isascii() else canonical(document)


def _parse(data: bytes) -> object:
    try:
        document: object = READER.decode(data.decode())
        exact = _canonical(document)
    except RecursionError as fault:
        raise ValueError(f"more than {DEPTH_MAX} levels deep") from fault
    except UnicodeDecodeError as fault:
        raise ValueError(f"not UTF-8: {fault.reason} at byte {fault.start}") from fault
    except json.JSONDecodeError as fault:
        raise ValueError(f"not JSON: {fault.msg} at character {fault.pos}") from fault
    if exact != data:
        raise ValueError("not in canonical form")
    return document


def no_number(text: str) -> object:
    """Refuse what JSON calls a number and is no integer."""
    raise ValueError(f"holds {text}, which is no integer")


def _integer(text: str) -> int:
    number = int(text)
    if abs(number) > INTEGER_MAX:
        raise ValueError(f"holds {text}, which is beyond 2^53 - 1")
    return number


# Made once: a million events are read with them.
WRITER = json.JSONEncoder(sort_keys=True, ensure_ascii=False, separators=(",", ":"))
READER = json.JSONDecoder(parse_float=no_number, parse_int=_integer, parse_constant=no_number)
