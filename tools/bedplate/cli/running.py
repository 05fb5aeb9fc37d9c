"""The rollout that runs now, as commands say it that would not wait for it."""

import re
from collections.abc import Sequence
from dataclasses import dataclass

from bedplate.act import controllerlock
from bedplate.decide.fold import NodeState, Status, World
from bedplate.ledger.store import Ledger
from bedplate.sources.site import Site

ALIVE = re.compile(r"another (rollout is running: rollout (\d+) to .*)", re.DOTALL)


@dataclass(frozen=True)
class Running:
    """Who keeps others from rolling out. number: of its rollout, where its controller lives and has begun it."""

    said: str
    number: int | None = None

    def has_in_work(self, state: NodeState) -> bool:
        """Whether a node is in doubt only because this rollout has it in hand: its end is still to come."""
        return state.status is Status.IN_DOUBT and self.number is not None and state.rollout == self.number


def running(site: Site) -> Running | None:
    """The rollout that runs on this machine, or by the site's ledger on another controller; None: none does."""
    if site.fleet.example:
        return None
    with Ledger.read(site.ledger_url) as ledger:
        said = controllerlock.anybody(site, ledger)
    if said is None:
        return None
    alive = ALIVE.fullmatch(said)
    return Running(said, int(alive[2]) if alive else None)


def in_work(world: World, now: Running | None, names: Sequence[str]) -> list[str]:
    """Those of the nodes that a living rollout has in hand."""
    return [name for name in names if now is not None and now.has_in_work(world.state(name))]
