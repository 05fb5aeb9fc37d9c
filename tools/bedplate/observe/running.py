"""Which environment the ledger says each node runs."""

from bedplate.decide.fold import World
from bedplate.ledger import projection
from bedplate.ledger.store import Ledger
from bedplate.sources.site import Site


def world(site: Site) -> World:
    """Everything the ledger says now."""
    with Ledger.read(site.ledger_url) as ledger:
        return projection.world(ledger)


def running(site: Site) -> dict[str, str]:
    """Node name -> name of the environment of its last completed change."""
    now = world(site)
    return {name: now.names[state.runs] for name, state in now.nodes.items() if state.runs and state.runs in now.names}
