"""A ledger as a text file that verifies by itself, on any machine, in ten years.

Lines of canonical JSON, each ended by a newline:
- the first says what it is, of which site, how many events there are, and its head;
- then every event, in order, with its body and all its hashes;
- then every signed head (decide/ledgeranchor.py);
- the last holds the sha256 of all lines before it: a file that ends without it was cut short.

The same ledger and anchors are the same bytes, whoever exports them and whenever.
"""

import json
from collections.abc import Iterable, Iterator
from dataclasses import asdict, dataclass, field
from hashlib import sha256
from itertools import chain, islice
from typing import Any

from bedplate.decide.chain import Damage, Row, check_chain
from bedplate.decide.ledgeranchor import Anchor, parse_anchor
from bedplate.model.event import GENESIS, WRITER, Event, body_bytes, subjects_bytes

FORMAT = "bedplate-ledger"
VERSION = 1
TEXTS = ("at", "actor", "kind", "environment", "body_sha256", "previous", "sha256")
MEMBERS = frozenset({"id", "subjects", "body", *TEXTS})


@dataclass
class Reading:
    """What an export holds, and everything wrong with it; complete when its lines were read to their end."""

    site: str = ""
    head: tuple[int, str] = (0, GENESIS)
    events: int = 0
    anchors: list[Anchor] = field(default_factory=list)
    damage: list[Damage] = field(default_factory=list)


def export(site: str, head: tuple[int, str], events: Iterable[Event], anchors: Iterable[Anchor]) -> Iterator[bytes]:
    """The lines of an export; events: all up to the head."""
    digest = sha256()
    first = {
        "format": FORMAT, "version": VERSION, "site": site, "events": head[0],
        "head": {"id": head[0], "sha256": head[1]},
    }  # fmt: skip
    for document in _documents(first, events, anchors):
        line = _line(document)
        digest.update(line)
        yield line
    yield _line({"end": {"sha256": f"sha256:{digest.hexdigest()}"}})


def read(lines: Iterable[bytes], reading: Reading) -> Iterator[Row]:
    """The events of an export as rows; what else it holds, and what is wrong with its lines, go into reading."""
    digest, number, ended = sha256(), 0, False
    for number, line in enumerate(lines, 1):
        document = _parsed(line, number, reading)
        if ended:
            reading.damage.append(Damage(None, f"line {number}: stands behind the end"))
        if document is None:
            pass
        elif number == 1:
            _first(document, reading)
        elif "end" in document:
            ended = True
            if document != {"end": {"sha256": f"sha256:{digest.hexdigest()}"}}:
                reading.damage.append(Damage(None, f"line {number}: the sha256 of the lines before it is another one"))
        elif "anchor" in document:
            _anchor(document, number, reading)
        else:
            row = _row(document, number, reading)
            if row is not None:
                reading.events += 1
                yield row
        digest.update(line)
    if not ended:
        reading.damage.append(Damage(None, f"ends with line {number}, without its last one: it was cut short"))


def check(lines: Iterable[bytes]) -> Reading:
    """Judge an export: its lines, its chain, and whether the chain reaches the head that its first line says."""
    reading = Reading()
    rows = read(lines, reading)
    first = list(islice(rows, 1))  # the first line is read now, and what it says of the head is known
    heads = [(*reading.head, "the first line of the export")] if reading.head[0] else []
    found = list(check_chain(chain(first, rows), heads=heads))
    if reading.events != reading.head[0]:
        found.append(Damage(None, f"has {reading.events} events, its first line says {reading.head[0]}"))
    reading.damage = list(dict.fromkeys([*reading.damage, *found]))
    return reading


def _documents(first: dict[str, Any], events: Iterable[Event], anchors: Iterable[Anchor]) -> Iterator[dict[str, Any]]:
    yield first
    for event in events:
        yield {**vars(event), "subjects": list(event.subjects)}
    for anchor in sorted(anchors, key=lambda one: (one.id, one.at, one.sha256)):
        yield {"anchor": asdict(anchor)}


def _line(document: dict[str, Any]) -> bytes:
    return WRITER.encode(document).encode() + b"\n"


def _parsed(line: bytes, number: int, reading: Reading) -> dict[str, Any] | None:
    try:
        document = json.loads(line)
    except (ValueError, RecursionError):
        reading.damage.append(Damage(None, f"line {number}: is no JSON{_torn(line)}"))
        return None
    if not isinstance(document, dict):
        reading.damage.append(Damage(None, f"line {number}: is no JSON object"))
        return None
    if _line(document) != line:
        reading.damage.append(Damage(None, f"line {number}: is not as bedplate writes it{_torn(line)}"))
    return document


def _torn(line: bytes) -> str:
    return "" if line.endswith(b"\n") else ": torn off"


def _first(document: dict[str, Any], reading: Reading) -> None:
    head = document.get("head")
    if document.get("format") != FORMAT or not isinstance(head, dict):
        reading.damage.append(Damage(None, "line 1: is not the first line of an export of a ledger"))
        return
    if document.get("version") != VERSION:
        what = f"line 1: version {document.get('version')}, this bedplate reads {VERSION}"
        reading.damage.append(Damage(None, what))
    number, digest = head.get("id"), head.get("sha256")
    if type(number) is not int or not isinstance(digest, str) or document.get("events") != number:
        reading.damage.append(Damage(None, "line 1: its head or its number of events is malformed"))
        return
    reading.site, reading.head = str(document.get("site")), (number, digest)


def _anchor(document: dict[str, Any], number: int, reading: Reading) -> None:
    try:
        reading.anchors.append(parse_anchor(json.dumps(document["anchor"])))
    except ValueError as fault:
        reading.damage.append(Damage(None, f"line {number}: an anchor that {fault}"))


def _row(document: dict[str, Any], number: int, reading: Reading) -> Row | None:
    if document.keys() != MEMBERS or type(document["id"]) is not int:
        absent = ", ".join(sorted(MEMBERS - document.keys())) or "of another kind"
        reading.damage.append(Damage(None, f"line {number}: has not the members of an event ({absent})"))
        return None
    texts = {
        name: document[name] for name in ("at", "actor", "kind", "environment", "body_sha256", "previous", "sha256")
    }
    if any(not isinstance(text, str) and not (text is None and name == "environment") for name, text in texts.items()):
        reading.damage.append(Damage(document["id"], f"line {number}: a member has the wrong type"))
        return None
    if not isinstance(document["subjects"], list) or not all(isinstance(one, str) for one in document["subjects"]):
        reading.damage.append(Damage(document["id"], f"line {number}: its subjects are no list of texts"))
        return None
    raw = {name: None if text is None else text.encode(errors="replace") for name, text in texts.items()}
    try:
        body = body_bytes(document["body"])
    except ValueError as fault:
        reading.damage.append(Damage(document["id"], f"line {number}: {fault}"))
        return None
    return Row(id=document["id"], subjects=subjects_bytes(document["subjects"]), body=body, **raw)
