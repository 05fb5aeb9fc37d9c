"""What each node was after each event that made it another one: rows of a history, from the fold.

A row says who the node was *from this event on*. Steps of a change and verifications that only confirm are no rows of
their own: they change nothing that is asked of the past; the last event of all is kept for each node. Rows are hashed
in their order, so that a kept history can be compared with the events.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from hashlib import sha256
from operator import attrgetter

from bedplate.decide.fold import NodeState, Status
from bedplate.model.event import Event

NO_ROWS = "sha256:" + "0" * 64  # the digest of a history without rows


@dataclass(frozen=True)
class Change:
    """From this event on the node has this status and runs this environment (an identity)."""

    node: str
    event: int
    status: str
    runs: str | None


class History:
    """Collects the changes of events as they are folded: hand `changed` to decide.fold.fold.

    known: what the events before said of the nodes; digest: of the rows before.
    """

    def __init__(self, known: Mapping[str, NodeState] | None = None, digest: str = NO_ROWS) -> None:
        self._last = {node: _key(state) for node, state in (known or {}).items()}
        self.rows: list[Change] = []
        self.latest: dict[str, int] = {}
        """Node -> the last event that changed anything of it."""
        self.digest = digest
        """Of all rows that ever came, also of those that were taken."""

    def changed(self, event: Event, node: str, state: NodeState) -> None:
        self.latest[node] = event.id
        if event.kind == "step.ended" and state.status is not Status.RESCUED:
            return
        key = _key(state)
        if self._last.get(node) == key:
            return
        self._last[node] = key
        change = Change(node, event.id, str(state.status), state.runs)
        self.rows.append(change)
        self.digest = chained(self.digest, change)

    def take(self) -> list[Change]:
        """The rows since the last call."""
        rows, self.rows = self.rows, []
        return rows


def chained(digest: str, change: Change) -> str:
    """The digest of rows and one more."""
    row = f"{digest}\n{change.node}\n{change.event}\n{change.status}\n{change.runs or ''}"
    return "sha256:" + sha256(row.encode(errors="replace")).hexdigest()


# What makes a row; attrgetter: a million events ask for it some three million times.
_key: Callable[[NodeState], tuple[object, ...]] = attrgetter("status", "runs", "previous", "target", "rollout", "why")
