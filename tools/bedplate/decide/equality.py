"""Whether a node is again what it was: the facts of two verifications, compared by hash."""

from collections.abc import Iterable
from dataclasses import dataclass

from bedplate.decide.fold import node_names
from bedplate.model.event import Event


@dataclass(frozen=True)
class Return:
    """One node after a rollback. then, now: fact -> hash; then is from the last verification before it left."""

    node: str
    then_event: int | None
    now_event: int | None
    then: dict[str, str]
    now: dict[str, str]

    @property
    def equal(self) -> bool:
        return bool(self.then) and self.then == self.now

    @property
    def differs(self) -> list[str]:
        return sorted(key for key in self.then.keys() | self.now.keys() if self.then.get(key) != self.now.get(key))


def returns(events: Iterable[Event], nodes: Iterable[str], identity: str, began: int) -> list[Return]:
    """Compare nodes with the last time they were verified under the same environment.

    began: id of the event that started the rollback; verifications before it are `then`, later ones `now`.
    """
    then: dict[str, Event] = {}
    now: dict[str, Event] = {}
    for event in events:
        if event.kind != "node.verified" or event.environment != identity or event.body.get("verdict") != "PASS":
            continue
        for name in node_names(event):
            (then if event.id < began else now)[name] = event

    def facts(found: dict[str, Event], name: str) -> dict[str, str]:
        return dict(found[name].body["facts"]) if name in found else {}

    def number(found: dict[str, Event], name: str) -> int | None:
        return found[name].id if name in found else None

    return [Return(n, number(then, n), number(now, n), facts(then, n), facts(now, n)) for n in nodes]
