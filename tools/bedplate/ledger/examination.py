"""Reads every stored byte of a ledger for judgement, through whatever the database can still read."""

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass

from bedplate.decide.chain import Damage, Held, Row, Unreadable, check_chain
from bedplate.ledger.shelf import Shelf
from bedplate.model.event import GENESIS


@dataclass(frozen=True)
class Examination:
    """What a verification found: how many events, the last one, and every damage."""

    events: int
    head: tuple[int, str]
    damage: tuple[Damage, ...]


def examine(
    shelf: Shelf, *, heads: Iterable[tuple[int, str, str]] = (), told: Callable[[Row, Held], None] | None = None
) -> Examination:
    """Judge store and chain inside the caller's transaction: at one point in time.

    heads: id, sha256 and name of each head that was noted elsewhere; told: is told every sound event, in order.

    Raises:
        the shelf's errors: it cannot be read, for another reason than damage.
    """
    found: list[Damage] = []
    count, head = 0, (0, GENESIS)

    def counted() -> Iterator[Row | Unreadable]:
        nonlocal count, head
        for row in shelf.rows():
            if isinstance(row, Row):
                count, head = count + 1, (row.id, (row.sha256 or b"").decode(errors="replace"))
            yield row

    parts: list[Callable[[], Iterable[Damage]]] = [
        shelf.faults,
        lambda: check_chain(counted(), heads=heads, told=told),
    ]
    for part in parts:
        try:
            found.extend(part())
        except shelf.errors as fault:
            what = shelf.finding(fault)
            if what is None:
                raise
            found.append(Damage(None, what))
    return Examination(count, head, tuple(dict.fromkeys(found)))
