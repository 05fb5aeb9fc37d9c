"""Where the whole of a text is that a line of a table had no room for: in the event that says why a node failed."""

from collections.abc import Mapping

from bedplate.decide.fold import VERIFICATION, NodeState, node_names
from bedplate.ledger.store import Ledger

CUT = "` ... `: something is left out there; all of an event: bedplate ledger show NUMBER, which stands before it"


def events_of(book: Ledger, states: Mapping[str, NodeState]) -> dict[str, int]:
    """Node -> the event that made it what it is and says why."""
    kinds = set[str]()
    for state in states.values():
        kinds |= {"node.verified"} if state.step == VERIFICATION else {"node.failed", "node.unreachable"}
    found = dict[str, int]()
    for event in book.events(kinds=kinds) if kinds else ():
        for name in node_names(event):
            if name in states and states[name].at == event.at:
                found[name] = event.id
    return found


def pointer(number: int | None) -> str:
    """What follows a text that was cut."""
    return "" if number is None else f" (all of it: bedplate ledger show {number})"
