"""Host lists in the syntax of Slurm and ClusterShell: gpu[001-640]."""

from collections.abc import Iterable

from ClusterShell.NodeSet import NodeSet, NodeSetParseError


def expand(text: str) -> list[str]:
    """The names in a host list, in its order.

    Raises:
        ValueError: the text is no host list; the message says why.
    """
    try:
        # Without a resolver: "@group" would ask the controller's own ClusterShell configuration.
        return list(NodeSet(text, resolver=None))
    except NodeSetParseError as fault:
        raise ValueError(str(fault)) from fault


def fold(names: Iterable[str]) -> str:
    """The shortest host list for names: n[1-6,8]."""
    return str(NodeSet.fromlist(list(names), resolver=None))
