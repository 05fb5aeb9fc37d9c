"""A site without host keys: no node can be asked, and every one of them would say so by itself."""

from bedplate.model.faults import BadInput, Fault
from bedplate.sources.site import Site, shown


def missing(site: Site) -> Fault | None:
    """The file of host keys that is not there, where that is said, and how it is filled; None where it is."""
    path = site.known_hosts_path
    if path.exists():
        return None
    said = f"{shown(site.fleet_path)}:{site.fleet.document.line('ssh', 'known_hosts')}"
    found = f"missing: without host keys no node is asked anything (ssh.known_hosts, {said}, says that they are there)"
    remedy = (
        f"for each node: ssh-keyscan -t ed25519 ADDRESS >> {shown(path)}, compared with what its console says is in"
        " /etc/ssh/ssh_host_ed25519_key.pub; a machine that is installed over the network puts its own there"
    )
    return Fault(shown(path), None, found, remedy)


def refuse_missing(site: Site) -> None:
    """Refuse before 660 nodes each say it.

    Raises:
        BadInput: the site has no file of host keys.
    """
    if fault := missing(site):
        raise BadInput([fault])
