"""Asks slurmctld, on its own machine, over ssh: the states of nodes, drains, returns, partitions."""

import shlex
from collections.abc import Iterable, Mapping

from bedplate.decide.slurmnodes import SHOW, NoAnswer, SlurmNode, drains, outcomes, resumes, shown
from bedplate.model.faults import BadInput, NodesFailed
from bedplate.sources.site import Site
from bedplate.ssh import Target, run_everywhere

DEADLINE_S = 120.0  # a controller with a full queue takes some seconds for each command


class Slurm:
    """The controllers of a site's nodes. Every method raises NodesFailed where Slurm gives no answer."""

    def __init__(self, site: Site, machine: str) -> None:
        self.site, self.machine = site, machine

    def nodes(self) -> dict[str, SlurmNode]:
        try:
            return shown(self._run(SHOW))
        except NoAnswer as fault:
            raise NodesFailed(f"slurmctld on {self.machine}: {fault}") from None

    def drain(self, reasons: Mapping[str, str]) -> dict[str, str]:
        """Drain nodes that have no reason; node -> "" or why it was left as it is."""
        return outcomes(self._run(drains(reasons)), reasons) if reasons else {}

    def resume(self, reasons: Mapping[str, str]) -> dict[str, str]:
        """Give back nodes whose reason is this one still; node -> "" or why it was left as it is."""
        return outcomes(self._run(resumes(reasons)), reasons) if reasons else {}

    def partition(self, name: str, nodes: str) -> None:
        """Set the nodes (a host list) of a partition, until slurmctld reads its file again."""
        self._run(f"scontrol update partitionname={shlex.quote(name)} nodes={shlex.quote(nodes)}")

    def _run(self, script: str) -> str:
        ssh = self.site.fleet.ssh
        target = Target(
            self.machine, self.site.fleet.nodes[self.machine].address, ssh.user, ssh.port, self.site.identity_path,
            self.site.known_hosts_path,
        )  # fmt: skip
        # On stdin: a drain of hundreds of nodes is longer than a command line may be.
        (answer,) = run_everywhere([target], "sh -s", stdin=script.encode(), timeout_s=DEADLINE_S)
        if not answer.ok:
            raise NodesFailed(f"slurmctld on {self.machine} does not answer: {answer.why}")
        return answer.out.decode(errors="replace")


def slurm_of(site: Site, environments: Iterable[str]) -> Slurm:
    """The controllers of the nodes that run these environments; the first machine of them is asked.

    Raises:
        BadInput: no node has Slurm, or they have different ones.
    """
    found: dict[str, list[str]] = {}
    for name in sorted(set(environments)):
        above = site.lock(name).layers["scheduler"].get("controller")
        if above:
            found[str(above)] = list(site.surroundings["fleet"]["environments"].get(str(above), []))
    machines = {tuple(those) for those in found.values() if those}
    if len(machines) != 1:
        raise BadInput(
            f"{site.root}: "
            + ("nodes have several controllers: " + "; ".join(map(str, sorted(machines))) if machines else
               "no environment that nodes run names a controller of Slurm (layers.scheduler.controller)")
        )  # fmt: skip
    return Slurm(site, machines.pop()[0])
