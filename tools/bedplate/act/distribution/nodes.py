"""The nodes of a site as targets, and one question to each of them."""

import json
from collections.abc import Collection, Iterator, Mapping, Sequence
from typing import Any

from bedplate.act.distribution import nodeprogram
from bedplate.act.distribution.payload import DIRECTORY
from bedplate.model.faults import BadInput
from bedplate.model.fleet import Node
from bedplate.model.nodes import fold
from bedplate.sources.site import Site
from bedplate.ssh import Answer, Target, run_everywhere


def chosen(site: Site, environment: str, names: Collection[str] | None) -> list[Node]:
    """Nodes of an environment's kinds, all or those named.

    Raises:
        BadInput: one that is named is not the environment's.
    """
    kinds = site.environment(environment).kinds
    nodes = site.fleet.nodes_of(kinds)
    if names is None:
        return nodes
    others = set(names) - {node.name for node in nodes}
    if others:
        raise BadInput(f"{fold(others)}: no node that environment {environment} is for (kinds {', '.join(kinds)})")
    return [node for node in nodes if node.name in names]


def target(site: Site, node: Node) -> Target:
    ssh = site.fleet.ssh
    return Target(node.name, node.address, ssh.user, ssh.port, site.identity_path, site.known_hosts_path)


def ask(
    targets: Sequence[Target], spec: Mapping[str, Mapping[str, Any]], *, timeout_s: float
) -> Iterator[tuple[Answer, dict[str, Any], str]]:
    """Ask each node its question: its answer, what it said (of each key the last word), and why that is nothing."""
    for answer in run_everywhere(
        targets,
        nodeprogram.command(DIRECTORY),
        stdin=lambda name: nodeprogram.opening(spec[name]),
        timeout_s=timeout_s,
    ):
        said = words(answer.out)
        why = "" if answer.ok else str(said.get("failed") or answer.why)
        yield answer, said, why


def words(out: bytes) -> dict[str, Any]:
    """Lines of JSON objects, merged; what else a system says at a login is left out."""
    found: dict[str, Any] = {}
    for line in out.splitlines():
        try:
            word = json.loads(line)
        except ValueError:
            continue
        if isinstance(word, dict):
            found |= word
    return found
