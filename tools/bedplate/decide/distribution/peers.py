"""Who is a peer of whom: rack mates, and a few links to other racks.

- A node has at least the rack mates that keep its rack in one piece, whoever of them fails alone.
- Racks are linked in a ring and by chords of doubling length, two links each way: pieces reach any rack in few steps,
  and an uplink carries a few copies instead of one for each node (a swarm that does not know racks sends nearly all of
  its bytes across: with 20 racks of 32, 95 %).
- The source knows a few nodes of each rack, or of one rack many.
"""

from collections.abc import Mapping, Sequence

WHOLE_RACK = 16  # up to so many rack mates, each knows each
MATES = 12  # in a larger rack
LINKS = 2  # between two racks that are linked
SOURCE_PEERS = 8  # at least so many nodes know the source, where there are so many
SOURCE_PER_RACK = 2


def peers(racks: Mapping[str, Sequence[str]]) -> dict[str, set[str]]:
    """Node -> its peers; whoever is a peer is one both ways. racks: name -> nodes in their order."""
    found: dict[str, set[str]] = {node: set() for nodes in racks.values() for node in nodes}

    def link(one: str, other: str) -> None:
        if one != other:
            found[one].add(other)
            found[other].add(one)

    for nodes in racks.values():
        steps = range(1, len(nodes)) if len(nodes) <= WHOLE_RACK else _steps(len(nodes), MATES // 2)
        for index, node in enumerate(nodes):
            for step in steps:
                link(node, nodes[(index + step) % len(nodes)])
    groups = [nodes for nodes in racks.values() if nodes]
    for index, nodes in enumerate(groups):
        for step in _doubling(len(groups)):
            others = groups[(index + step) % len(groups)]
            for number in range(LINKS):  # other nodes for other steps: one node is not the door of its rack
                link(nodes[(number + LINKS * step) % len(nodes)], others[(number + LINKS * step) % len(others)])
    return found


def of_source(racks: Mapping[str, Sequence[str]]) -> list[str]:
    """The nodes that the source connects to."""
    groups = [nodes for nodes in racks.values() if nodes]
    if not groups:
        return []
    each = max(SOURCE_PER_RACK, -(-SOURCE_PEERS // len(groups)))
    return [node for nodes in groups for node in nodes[:: max(1, len(nodes) // each)][:each]]


def _steps(count: int, most: int) -> list[int]:
    """Distances in a ring of that many: 1 and 2, so that it holds without any one, and some long ones."""
    steps, step = [1, 2], 4
    while len(steps) < most and step <= count // 2:
        steps.append(step)
        step *= 2
    return steps


def _doubling(count: int) -> list[int]:
    steps, step = [], 1
    while step < count:
        steps.append(step)
        step *= 2
    return steps
