"""Node names from the command line."""

from collections.abc import Collection, Sequence

from bedplate.cli import near
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
        there = f"{near.said(unknown[0], site.fleet.nodes)}it has: {fold_names(site.fleet.nodes)}"
        raise BadInput(f"{said} {text}: {site.fleet_path} has no {fold_names(unknown)} ({there})")
    return names


def refuse_others(site: Site, names: Sequence[str], environment: str, kinds: Collection[str]) -> None:
    """Refuse nodes that an environment is not for.

    Raises:
        BadInput: there are some; it says of what kind they are, and which nodes the environment is for.
    """
    others = [name for name in names if site.fleet.nodes[name].kind not in kinds]
    if others:
        kinds_of = ", ".join(sorted({site.fleet.nodes[name].kind for name in others}))
        covered = [node.name for node in site.fleet.nodes_of(kinds)]
        raise BadInput(
            f"--nodes {fold_names(names)}: environment {environment} is for the kinds {', '.join(sorted(kinds))}, and "
            f"{fold_names(others)} is of {kinds_of} ({near.said(others[0], covered)}it is for: {fold_names(covered)})"
        )
