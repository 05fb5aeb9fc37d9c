"""Which way a file takes to which node."""

from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum

# Up to so many the source alone is as fast as a swarm: each peer would wait for pieces that the other has not yet.
FEW = 2


class Engine(StrEnum):
    AUTO = "auto"
    TORRENT = "torrent"
    HTTP = "http"
    SSH = "ssh"


@dataclass(frozen=True)
class Can:
    """What a node said of itself; bases: earlier artifacts that it has, by the names of their files."""

    torrent: bool
    xdelta3: bool
    bases: frozenset[str]


def engines(asked: Engine, nodes: Mapping[str, Can]) -> dict[Engine, list[str]]:
    """Engine -> the nodes that it serves, of those that lack the file.

    A node that cannot take part in a swarm is served over HTTP, whatever the others do.
    """
    if asked is not Engine.AUTO:
        return {asked: list(nodes)} if nodes else {}
    able = [name for name, can in nodes.items() if can.torrent]
    if len(able) <= FEW:
        able = []
    rest = [name for name in nodes if name not in able]
    return {engine: names for engine, names in ((Engine.TORRENT, able), (Engine.HTTP, rest)) if names}


def base(nodes: Mapping[str, Can], known: Mapping[str, int]) -> tuple[str, list[str]] | None:
    """The earlier artifact that a patch is made against, and the nodes that can use it.

    known: what the controller has, name of the file -> how recent (greater is later). The one that most nodes have
    wins, of equals the latest: each further base would be a further patch.
    """
    holders = {name: [node for node, can in nodes.items() if can.xdelta3 and name in can.bases] for name in known}
    best = max(holders, key=lambda name: (len(holders[name]), known[name], name), default=None)
    return (best, holders[best]) if best is not None and holders[best] else None
