"""The rollout that runs now, as commands say it that would not wait for it."""

from collections.abc import Sequence

from bedplate.act import controllerlock
from bedplate.act.controllerlock import Holder
from bedplate.decide.fold import NodeState, Status, World
from bedplate.ledger.store import Ledger
from bedplate.sources.site import Site


def running(site: Site) -> Holder | None:
    """The rollout that runs on this machine, or by the site's ledger on another controller; None: none does."""
    if site.fleet.example:
        return None
    with Ledger.read(site.ledger_url) as ledger:
        return controllerlock.anybody(site, ledger)


def has_in_work(now: Holder | None, state: NodeState) -> bool:
    """Whether a node is in doubt only because a living rollout has it in hand: its end is still to come."""
    return (
        now is not None and now.number is not None
        and state.status is Status.IN_DOUBT and state.rollout == now.number
    )  # fmt: skip


def in_work(world: World, now: Holder | None, names: Sequence[str]) -> list[str]:
    """Those of the nodes that a living rollout has in hand."""
    return [name for name in names if has_in_work(now, world.state(name))]
