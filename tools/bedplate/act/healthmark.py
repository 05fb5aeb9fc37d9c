"""Tells a node's timer what was dealt with: kernel messages before a time, until the node boots again."""

from bedplate.model.faults import NodesFailed
from bedplate.sources.site import Site
from bedplate.ssh import Target, run_everywhere

DEADLINE_S = 30.0
FOLDER = "/run/bedplate-health"
# Whole or not at all; of another boot it says nothing, and /run is gone with it anyway.
SCRIPT = (
    f"mkdir -p {FOLDER} && read -r boot < /proc/sys/kernel/random/boot_id && "
    f"echo $boot {{since_us}} > {FOLDER}/.since && mv {FOLDER}/.since {FOLDER}/since"
)


def forget_before(site: Site, name: str, since_us: int) -> None:
    """Leave out what the kernel of this boot reported before (microseconds since 1970).

    Raises:
        NodesFailed: the node did not take it.
    """
    ssh = site.fleet.ssh
    target = Target(
        name, site.fleet.nodes[name].address, ssh.user, ssh.port, site.identity_path, site.known_hosts_path
    )  # fmt: skip
    (answer,) = run_everywhere([target], SCRIPT.format(since_us=since_us), timeout_s=DEADLINE_S)
    if not answer.ok:
        raise NodesFailed(f"{name} was not told what was dealt with: {answer.why}")
