"""How ssh is called for the nodes of a site: host keys checked against the site's own file, one connection a node."""

import shlex

from bedplate.sources.site import Site


def ssh_options(site: Site) -> list[str]:
    """Options for the ssh program; the connection is shared and kept for a minute."""
    return [
        "-o", "StrictHostKeyChecking=yes",
        "-o", f"UserKnownHostsFile={site.known_hosts_path}",
        "-o", "GlobalKnownHostsFile=/dev/null",
        "-o", "IdentitiesOnly=yes",
        "-o", f"IdentityFile={site.identity_path}",
        "-o", "BatchMode=yes",
        "-o", "ControlMaster=auto",
        "-o", "ControlPath=~/.ssh/bedplate-%C",
        "-o", "ControlPersist=60s",
    ]  # fmt: skip


def ssh_arguments(site: Site) -> str:
    return shlex.join(ssh_options(site)).replace("'~/.ssh/bedplate-%C'", "~/.ssh/bedplate-%C")
