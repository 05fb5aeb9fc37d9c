"""Versions of Debian packages: their order, their parts, ranges of them.

The order is that of Debian Policy 5.6.12, as dpkg has it (lib/dpkg/version.c): epochs as numbers, then upstream
version and revision, each piece by piece: what is no digit (letters before everything else, `~` before even the
end), then digits as a number.

    >>> compare("1.0~rc1-1", "1.0-1")
    -1
    >>> upstream("1:4.6.0-1")
    '4.6.0'
    >>> parse_range(">=570.133.20,<600").holds("580.178.04")
    True
"""

import re
from dataclasses import dataclass
from itertools import zip_longest

_PIECES = re.compile(r"([^0-9]*)([0-9]*)")
_BOUND = re.compile(r"(>=|<=|>|<|=)\s*((?:[0-9]+:)?[0-9][A-Za-z0-9.+~-]*)")


def compare(left: str, right: str) -> int:
    """-1, 0 or 1: the order of two Debian versions; both are of the form that Debian Policy 5.6.12 has."""
    ours, theirs = _parts(left), _parts(right)
    if ours[0] != theirs[0]:
        return -1 if ours[0] < theirs[0] else 1
    return _compare_piece(ours[1], theirs[1]) or _compare_piece(ours[2], theirs[2])


def upstream(version: str) -> str:
    """A version without epoch and Debian revision."""
    return _parts(version)[1]


def same(left: str, right: str) -> bool:
    """Whether two packages are of one upstream version: revisions and epochs are the archive's business."""
    return _compare_piece(upstream(left), upstream(right)) == 0


def at_least(version: str, minimum: str) -> bool:
    """Whether the upstream version is a minimum's or later."""
    return _compare_piece(upstream(version), upstream(minimum)) >= 0


def numbers(version: str, count: int) -> tuple[int, ...] | None:
    """The first numbers of an upstream version, `26.05.3-1` -> (26, 5); None where it has fewer of them."""
    found = re.match(r"\.".join([r"(\d+)"] * count) + r"(?!\d)", upstream(version))
    return tuple(int(part) for part in found.groups()) if found else None


@dataclass(frozen=True)
class Range:
    """Upstream versions between bounds, all of which hold: `>=570.133.20,<600`."""

    text: str
    bounds: tuple[tuple[str, str], ...]

    def holds(self, version: str) -> bool:
        """Whether a version lies inside. `<600` and `<=580` speak of upstream versions."""
        return all(_HOLDS[sign](_compare_piece(upstream(version), upstream(bound))) for sign, bound in self.bounds)


_HOLDS = {
    ">=": lambda order: order >= 0, "<=": lambda order: order <= 0, ">": lambda order: order > 0,
    "<": lambda order: order < 0, "=": lambda order: order == 0,
}  # fmt: skip


def parse_range(text: str) -> Range | None:
    """A range, or None where the text is none."""
    found = [_BOUND.fullmatch(part.strip()) for part in text.split(",")]
    bounds = tuple((bound[1], bound[2]) for bound in found if bound)
    return Range(text, bounds) if len(bounds) == len(found) else None


def _parts(version: str) -> tuple[int, str, str]:
    epoch, colon, rest = version.partition(":")
    if not colon:
        epoch, rest = "0", version
    whole, dash, revision = rest.rpartition("-")
    return int(epoch), whole if dash else rest, revision if dash else ""


def _compare_piece(left: str, right: str) -> int:
    for (text, digits), (other_text, other_digits) in zip_longest(
        _PIECES.findall(left), _PIECES.findall(right), fillvalue=("", "")
    ):
        for ours, theirs in zip_longest(text, other_text, fillvalue=""):
            if ours != theirs:
                return -1 if _weight(ours) < _weight(theirs) else 1
        number, other = int(digits or 0), int(other_digits or 0)
        if number != other:
            return -1 if number < other else 1
    return 0


def _weight(character: str) -> int:
    if character == "~":
        return -1
    if not character:
        return 0
    return ord(character) if character.isalpha() else ord(character) + 256
