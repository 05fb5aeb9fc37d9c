"""Reads every stored byte of a ledger for judgement, through whatever the database can still read."""

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass

from bedplate.decide.chain import Damage, Row, Unreadable, check_chain
from bedplate.ledger.shelf import Shelf
from bedplate.model.event import GENESIS


@dataclass(frozen=True)
class Examination:
    """What a verification found: how many events, the last one, and every damage."""

    events: int
    head: tuple[int, str]
    damage: tuple[Damage, ...]


def examine(shelf: Shelf, *, heads: Iterable[tuple[int, str, str]] = ()) -> Examination:
    """Judge store and chain inside the caller's transaction: at one point in time.

    heads: id, sha256 and name of each head that was noted elsewhere.

    Raises:
        the shelf's errors: it cannot be read, for another reason than damage.
    """
    found: list[Damage] = []
    count, last = 0, None

    def counted() -> Iterator[Row | Unreadable]:
        nonlocal count, last
        for row in shelf.rows():
            if isinstance(row, Row):
                count, last = count + 1, row
            yield row

    parts: list[Callable[[], Iterable[Damage]]] = [
        shelf.faults,
        lambda: check_chain(counted(), heads=heads),
    ]
    for part in parts:
        try:
            found.extend(part())
        except shelf.errors as fault:
            what = shelf.finding(fault)
            if what is None:
                raise
            found.append(Damage(None, what))
    head = (0, GENESIS) if last is None else (last.id, (last.sha256 or b"").decode(errors="replace"))
    return Examination(count, head, tuple(dict.fromkeys(found)))
