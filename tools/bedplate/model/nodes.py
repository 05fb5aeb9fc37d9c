"""Host lists in the syntax of Slurm and ClusterShell: gpu[001-640]."""

import re
from collections.abc import Iterable
from math import prod

from ClusterShell.NodeSet import RESOLVER_NOGROUP, NodeSet, NodeSetParseError

MAX_NODES = 100_000  # ten of the largest fleets; more is a typing error that would fill the memory
_RANGE = re.compile(r"\s*([0-9]+)\s*(?:-\s*([0-9]+)\s*(?:/[0-9]+\s*)?)?")  # without ClusterShell's negative numbers
_BRACKETS = re.compile(r"\[([^\[\]]*)\]")


def expand(text: str) -> list[str]:
    """The names in a host list, in its order.

    Raises:
        ValueError: the text is no host list; the message says why.
    """
    # Groups ("@training", "*") would be those of the controller's own ClusterShell configuration.
    if "@" in text or "*" in text:
        raise ValueError("groups (@, *) have no meaning here")
    if _most(text) > MAX_NODES:
        raise ValueError(f"more than {MAX_NODES} nodes")
    try:
        return list(NodeSet(text, resolver=RESOLVER_NOGROUP))
    except NodeSetParseError as fault:
        raise ValueError(str(fault)) from fault


def fold(names: Iterable[str]) -> str:
    """The shortest host list for names: n[1-6,8]."""
    return str(NodeSet.fromlist(list(names), resolver=RESOLVER_NOGROUP))


def _most(text: str) -> int:
    """How many names a host list can have at most, without making them."""
    operands = re.split(r"[,!&^\s]+(?![^\[\]]*\])", text)
    return sum(prod(_size(brackets) for brackets in _BRACKETS.findall(operand)) for operand in operands)


def _size(ranges: str) -> int:
    """Names of one pair of brackets: 1-6,8 has 7."""
    size = 0
    for part in ranges.split(","):
        numbers = _RANGE.fullmatch(part)
        if numbers is None:
            raise ValueError(f'bad range "{part}"')
        # Past 15 digits the difference is large enough, and Python's own limit on digits far enough.
        first, last = (int(number[:15]) for number in (numbers[1], numbers[2] or numbers[1]))
        size += max(last - first, 0) + 1
    return size
