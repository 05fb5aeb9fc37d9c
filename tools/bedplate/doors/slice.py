"""Lookup `bedplate_slice`: what the lock says for this kind of node, for the wiring of the roles."""

from functools import cache
from typing import Any

from ansible.errors import AnsibleError
from ansible.plugins.lookup import LookupBase

from bedplate.act.rollout import rendered
from bedplate.decide.wiring import role_values
from bedplate.doors import site as site_door
from bedplate.model.faults import BedplateError


class LookupModule(LookupBase):
    def run(self, terms: list[Any], variables: dict[str, Any] | None = None, **kwargs: Any) -> list[Any]:  # noqa: ARG002
        node = str((variables or {})["inventory_hostname"])
        try:
            return [_slice(str(terms[0]), node)]
        except BedplateError as fault:
            raise AnsibleError(str(fault)) from None


@cache
def _slice(environment: str, node: str) -> dict[str, Any]:
    site = site_door.current()
    key = (site.root / site.environment(environment).archive.key).read_bytes()
    kind = site.fleet.nodes[node].kind
    return role_values(site.lock(environment), kind, rendered(site, environment, node), key)
