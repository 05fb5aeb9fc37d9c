"""In which order environments of one upgrade are rolled out: what others depend on goes first.

Slurm's own order is database, controller, nodes, clients: a slurmd never talks to an older slurmctld, and a client to
neither. Database and controller are roles of one environment, in their order; so the order between environments is that
of the roles that their nodes get. Driver and kernel have none between machines: each node's roles are in order.
"""

from collections.abc import Iterable, Mapping

FIRST = ("slurm_database", "slurm_controller")
NODES = ("slurm_node",)


def in_waves(roles: Mapping[str, Iterable[str]]) -> list[str]:
    """Environments in their order, equals as given; roles: environment -> names of the roles that its nodes get."""
    return sorted(roles, key=lambda name: _wave(set(roles[name])))


def _wave(roles: set[str]) -> int:
    if roles & set(FIRST):
        return 0
    return 1 if roles & set(NODES) else 2
