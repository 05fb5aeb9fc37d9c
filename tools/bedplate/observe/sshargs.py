"""How ssh is called for the nodes of a site: its own known hosts and identity, and an end for dead connections."""

import shlex

from bedplate.sources.site import Site

ALIVE_INTERVAL_S, ALIVE_COUNT = 5, 3  # a node that says nothing for 15 s is not there


def ssh_options(site: Site) -> list[str]:
    """Options for the ssh program: host keys are checked against the site's own file, and nothing else."""
    options = {
        "StrictHostKeyChecking": "yes",
        "UserKnownHostsFile": f'"{site.known_hosts_path}"',
        "GlobalKnownHostsFile": "/dev/null",
        "IdentitiesOnly": "yes",
        # A shared connection to a node that went away would hang for as long as TCP hopes: minutes.
        "ServerAliveInterval": str(ALIVE_INTERVAL_S),
        "ServerAliveCountMax": str(ALIVE_COUNT),
    }
    return [word for name, value in options.items() for word in ("-o", f"{name}={value}")]


def ssh_arguments(site: Site) -> str:
    """The same for testinfra, with one connection for a node's questions."""
    own = ["-i", str(site.identity_path), "-o", "BatchMode=yes"]
    shared = "-o ControlMaster=auto -o ControlPath=~/.ssh/bedplate-%C -o ControlPersist=60s"
    return f"{shlex.join([*ssh_options(site), *own])} {shared}"
