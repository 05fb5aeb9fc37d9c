"""Asks nodes for the digest of their state, all at once: one remote command each, whatever the number of nodes."""

from collections.abc import Mapping

from bedplate.decide.statedigest import Digested, parse_digest
from bedplate.sources.site import Site
from bedplate.ssh import Target, run_everywhere

DEADLINE_S = 120.0  # hundreds of files to hash, and a dpkg database of 2,500 packages: some seconds
WIDTH = 96


def ask_digests(site: Site, programs: Mapping[str, str]) -> dict[str, Digested | str]:
    """Node -> its digest, or why there is none; programs: node -> what decide/statedigest.py has it run."""
    ssh, nodes = site.fleet.ssh, site.fleet.nodes
    targets = [
        Target(name, nodes[name].address, ssh.user, ssh.port, site.identity_path, site.known_hosts_path)
        for name in programs
    ]

    def program(name: str) -> bytes:
        return programs[name].encode()

    return {
        answer.name: parse_digest(answer.out.decode(errors="replace")) if answer.ok else answer.why
        for answer in run_everywhere(targets, "sh -s", stdin=program, width=WIDTH, timeout_s=DEADLINE_S)
    }
