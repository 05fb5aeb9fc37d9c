"""Lookup `bedplate_slice`: what the lock says for this kind of node, for the wiring of the roles."""

from functools import cache
from typing import Any

from ansible.errors import AnsibleError
from ansible.plugins.lookup import LookupBase

from bedplate.act.rollout import rendered
from bedplate.doors import site as site_door
from bedplate.model.faults import BedplateError


class LookupModule(LookupBase):  # type: ignore[misc]
    def run(self, terms: list[Any], variables: dict[str, Any] | None = None, **kwargs: Any) -> list[Any]:  # noqa: ARG002
        node = str((variables or {})["inventory_hostname"])
        try:
            return [_slice(str(terms[0]), node)]
        except BedplateError as fault:
            raise AnsibleError(str(fault)) from None


@cache
def _slice(environment: str, node: str) -> dict[str, Any]:
    """The kind's slice of the lock, and the files of this node: role -> list of path, mode, content, sha256."""
    site = site_door.current()
    lock = site.lock(environment)
    files: dict[str, list[dict[str, str]]] = {}
    for file in rendered(site, environment, node):
        item = {"path": file.path, "mode": file.mode, "content": file.data.decode(), "sha256": file.sha256}
        files.setdefault(file.role, []).append(item)
    return {**lock.slice(site.fleet.nodes[node].kind), "files": files}
