"""Node names from the command line."""

from bedplate.model.faults import BadInput
from bedplate.model.nodes import expand
from bedplate.model.nodes import fold as fold_names
from bedplate.sources.site import Site


def node_names(site: Site, text: str, *, said: str = "--nodes") -> list[str]:
    """The nodes of a host list; said: the option or argument that it was given as.

    Raises:
        BadInput: it is malformed, or names nodes that the fleet does not have.
    """
    try:
        names = expand(text)
    except ValueError as fault:
        raise BadInput(f"{said} {text}: {fault}") from None
    unknown = [name for name in names if name not in site.fleet.nodes]
    if unknown:
        raise BadInput(f"{said} {text}: {site.fleet_path} has no {fold_names(unknown)}")
    return names
