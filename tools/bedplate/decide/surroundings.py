"""What a template may know beyond its node: the fleet, and the hardware models of its kinds."""

from collections.abc import Mapping, Sequence
from dataclasses import asdict
from typing import Any

from bedplate.model.fleet import Fleet
from bedplate.model.hardware import HardwareModel


def surroundings(
    fleet: Fleet, models: Mapping[str, HardwareModel], host_keys: Sequence[str] = (),
    environments: Mapping[str, Sequence[str]] | None = None,
) -> dict[str, Any]:  # fmt: skip
    """As templates see it.

    models: kind -> its hardware model as a mapping; fleet: site, groups and partitions (name -> node names in the
    order of nodes.csv), racks (rack -> node names), kinds (kind -> node names), nodes (name -> address, kind, rack,
    position, partition, groups), host_keys (lines of known_hosts, sorted), environments (name -> nodes of its kinds,
    which is how nodes find the controllers of the environment that theirs names).

    environments: name -> kinds, of those that could be read.
    """
    partitions: dict[str, list[str]] = {}
    racks: dict[str, list[str]] = {rack: [] for rack in fleet.racks}
    kinds: dict[str, list[str]] = {kind: [] for kind in fleet.kinds}
    for node in fleet.nodes.values():
        if node.partition:
            partitions.setdefault(node.partition, []).append(node.name)
        racks[node.rack].append(node.name)
        kinds[node.kind].append(node.name)
    return {
        "models": {
            kind: asdict(models[entry.model]) for kind, entry in fleet.kinds.items() if entry.model in models
        },
        "fleet": {
            "site": fleet.site,
            "groups": {name: list(nodes) for name, nodes in fleet.groups.items()},
            "partitions": partitions,
            "racks": {rack: nodes for rack, nodes in racks.items() if nodes},
            "kinds": kinds,
            "host_keys": sorted(host_keys),
            "environments": {
                name: [node.name for node in fleet.nodes_of(kinds)] for name, kinds in (environments or {}).items()
            },
            "nodes": {
                node.name: {
                    "address": node.address, "kind": node.kind, "rack": node.rack, "position": node.position,
                    "partition": node.partition, "groups": list(node.groups),
                }
                for node in fleet.nodes.values()
            },
        },
    }  # fmt: skip
