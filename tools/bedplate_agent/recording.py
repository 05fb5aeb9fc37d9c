"""Recorded answers: a folder that judges like the node it came from.

    record.json    {"schema": 1, "node": …, "began": …, "profile": {…}, "classes": […],
                    "probes": {ID: {"state", "code", "ms", "why", "out": FILE, "err": TEXT}}}
    FILE           what each probe said, as it said it

A record may name a "base", a folder beside it: it then holds only what differs from there; a probe that is null is
missing, and one with an "edit" is the base's with texts replaced: [old, new], or [old, new, which] for one place.
So a support case becomes a test of a few lines.
"""

from __future__ import annotations

import json
import os
import re
from collections.abc import Mapping
from typing import Any, NamedTuple

from bedplate_agent.probe import DONE, STATES, Raw

SCHEMA = 1
INDEX = "record.json"


class Record(NamedTuple):
    node: str
    began: str
    profile: dict[str, Any]
    classes: list[str]
    raws: dict[str, Raw]


class BadRecord(Exception):
    """A folder that is no record, with why."""


def save(folder: str, record: Record) -> None:
    """Write a record; the index last, so that a folder with one is whole."""
    os.makedirs(folder, exist_ok=True)
    probes = {}
    for name, raw in record.raws.items():
        file = f"{re.sub(r'[^A-Za-z0-9]+', '_', name)}.out"
        _write(os.path.join(folder, file), raw.out)
        probes[name] = {"state": raw.state, "code": raw.code, "ms": raw.ms, "why": raw.why, "out": file, "err": raw.err}
    index = {
        "schema": SCHEMA, "node": record.node, "began": record.began, "profile": record.profile,
        "classes": record.classes, "probes": probes,
    }  # fmt: skip
    _write(os.path.join(folder, INDEX), json.dumps(index, indent=1, sort_keys=True) + "\n")


def load(folder: str) -> Record:
    """Read a record.

    Raises:
        BadRecord: it is none.
    """
    index, probes = _index(folder, depth=0)
    raws = {}
    for name, (place, said) in probes.items():
        if said is None:
            continue
        state, code = said.get("state", DONE), said.get("code", 0)
        if state not in STATES:
            raise BadRecord(f"{folder}: {name}: no state {state!r}")
        text = _edited(_read(os.path.join(place, str(said["out"]))) if "out" in said else "", said, f"{folder}: {name}")
        raws[name] = Raw(state, text, str(said.get("err", "")), code, int(said.get("ms", 0)), str(said.get("why", "")))
    return Record(
        str(index.get("node", "")), str(index.get("began", "")), index.get("profile") or {},
        list(index.get("classes") or ["passive"]), raws,
    )  # fmt: skip


def _index(folder: str, depth: int) -> tuple[dict[str, Any], dict[str, tuple[str, dict[str, Any] | None]]]:
    if depth > 3:  # noqa: PLR2004
        raise BadRecord(f"{folder}: more than 3 bases behind each other")
    try:
        index = json.loads(_read(os.path.join(folder, INDEX)))
    except ValueError as fault:
        raise BadRecord(f"{folder}/{INDEX}: no JSON: {fault}") from None
    if not isinstance(index, dict) or index.get("schema") != SCHEMA or not isinstance(index.get("probes"), dict):
        raise BadRecord(f"{folder}/{INDEX}: no record of schema {SCHEMA}")
    probes: dict[str, tuple[str, dict[str, Any] | None]] = {}
    if "base" in index:
        under, probes = _index(os.path.normpath(os.path.join(folder, str(index["base"]))), depth + 1)
        changes = index.get("expect", {})
        index = {**under, **index}
        profile = {**under["profile"], **{part: {**under["profile"][part], **said} for part, said in changes.items()}}
        index["profile"] = {**profile, **({"since_us": index["since_us"]} if "since_us" in index else {})}
    for name, said in index["probes"].items():
        if said is not None and "edit" in said:
            place, before = probes.get(name, (folder, {}))
            earlier = (before or {}).get("edit", [])
            probes[name] = (place, {**(before or {}), **said, "edit": [*earlier, *said["edit"]]})
        else:
            probes[name] = (folder, said)
    return index, probes


def _edited(text: str, said: dict[str, Any], where: str) -> str:
    for old, new, *which in said.get("edit", []):
        parts = text.split(old)
        if len(parts) < 2 or (which and not 1 <= which[0] < len(parts)):  # noqa: PLR2004
            raise BadRecord(f"{where}: there is no {old!r} to edit")
        at = which[0] if which else 0
        text = old.join(parts[:at]) + new + old.join(parts[at:]) if which else new.join(parts)
    return text


def _read(path: str) -> str:
    try:
        with open(path, encoding="utf-8", errors="replace", newline="") as file:
            return file.read()
    except OSError as fault:
        raise BadRecord(f"{path}: {fault.strerror}") from None


def _write(path: str, text: str) -> None:
    with open(path, "w", encoding="utf-8", errors="replace", newline="") as file:
        file.write(text)


def as_document(record: Mapping[str, Raw]) -> dict[str, Any]:
    """Raws for the way to the controller, which writes the record there."""
    return {name: raw._asdict() for name, raw in record.items()}
