"""What all parsers need: how they refuse, and numbers read strictly."""

from __future__ import annotations

import json
import re
from typing import Any

_NUMBER = re.compile(r"[+-]?[0-9]+(\.[0-9]+)?([eE][+-]?[0-9]+)?")
_INTEGER = re.compile(r"[0-9]+")
SHOWN = 80


class NotUnderstood(Exception):
    """The text is not what this parser knows; never a reason to pass."""


def shown(text: str) -> str:
    return repr(text[:SHOWN] + ("…" if len(text) > SHOWN else ""))


def number(text: str, what: str) -> float:
    """A decimal number as C writes it: no comma, no grouping, no other digits."""
    if not _NUMBER.fullmatch(text):
        raise NotUnderstood(f"{what}: {shown(text)} is no number")
    return float(text)


def integer(text: str, what: str) -> int:
    if not _INTEGER.fullmatch(text) or len(text) > 30:  # noqa: PLR2004  longer than any counter
        raise NotUnderstood(f"{what}: {shown(text)} is no whole number")
    return int(text)


def document(text: str, what: str) -> Any:
    """A JSON document, whole, and alone."""
    try:
        return json.loads(text)
    except (ValueError, RecursionError) as fault:
        raise NotUnderstood(f"{what}: no JSON: {str(fault)[:SHOWN]}") from None


def member(value: Any, name: str, kind: type, what: str) -> Any:
    """A member of a JSON object, of one kind."""
    if not isinstance(value, dict) or name not in value:
        raise NotUnderstood(f'{what} has no "{name}"')
    found = value[name]
    if not isinstance(found, kind) or (isinstance(found, bool) and kind is not bool):
        raise NotUnderstood(f"{what}: {name} is {shown(repr(found))}, no {kind.__name__}")
    return found
