"""What keeps the table of events: the few things that the store asks of SQLite or PostgreSQL.

Rows are tuples in the order of event.FIELDS; statements are written with `?`. What only one of the two knows (how a
writer takes its turn, what an error means, which guards there must be) is its shelf's; the chain is nobody's but
the store's.
"""

from collections.abc import Iterable, Iterator, Sequence
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any, Protocol

from bedplate.decide.chain import Damage, Row, Unreadable
from bedplate.model.faults import BedplateError

PAGE = 500  # events per read: few round trips, little memory
FIELDS = ("id", "at", "actor", "kind", "subjects", "environment", "body", "body_sha256", "previous", "sha256")


class Shelf(Protocol):
    """One connection to a table of events; the caller keeps threads apart."""

    name: str
    """What messages call it: a path, an address without its password."""
    stored: str
    """The columns of a row, every text as its stored bytes."""
    holds: str
    """A condition on the stored subjects with one `?`: that this text stands in them."""
    errors: tuple[type[Exception], ...]

    cache: Path | None
    """Where what its events say may be kept; None: nowhere, it is a copy that others do not share."""
    saved: Path | None
    """Where that may have been kept, by this or by what it is a copy of."""

    @property
    def exists(self) -> bool:
        """Whether there is a table at all; where there is none, there are no events."""

    def query(self, statement: str, parameters: Sequence[object] = ()) -> list[Any]: ...

    def insert(self, rows: Iterable[tuple[object, ...]]) -> None: ...

    def transaction(self, *, writes: bool) -> AbstractContextManager[None]:
        """One point in time; what was not committed is undone when it ends."""

    def commit(self) -> None: ...

    def turn(self, who: str) -> AbstractContextManager[None]:
        """The turn to append, around a transaction that writes.

        Raises:
            Busy: others hold it.
            BedplateError: it cannot be taken, or what was opened is no longer there.
        """

    def claim(self, *, shared: bool) -> bool:
        """Whether the ledger's rollouts are this connection's now, until it ends; shared: only to see if they are free.

        Where one machine holds the ledger, a lock of that machine keeps rollouts apart, and this is always true.
        """

    def trouble(self, fault: BaseException, doing: str) -> BedplateError:
        """The error to raise for what the database said."""

    def faults(self) -> Iterator[Damage]:
        """What is wrong with the store itself: its guards, its pages."""

    def rows(self) -> Iterator[Row | Unreadable]:
        """Every event by id, also one below 1; those that cannot be handed out, as such."""

    def finding(self, fault: BaseException) -> str | None:
        """What an error says is wrong with the store; None where it only says that it could not be read."""

    def close(self) -> None: ...
