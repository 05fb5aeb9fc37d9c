"""Lookup `bedplate_slice`: what the lock says for this kind of node, for the wiring of the roles."""

from functools import cache
from typing import Any

from ansible.errors import AnsibleError
from ansible.plugins.lookup import LookupBase

from bedplate.act.rollout import locked, rendered, roles
from bedplate.decide.wiring import files_of, kind_values
from bedplate.doors import site as site_door
from bedplate.model.faults import BedplateError


class LookupModule(LookupBase):
    def run(self, terms: list[Any], variables: dict[str, Any] | None = None, **kwargs: Any) -> list[Any]:  # noqa: ARG002
        node = str((variables or {})["inventory_hostname"])
        try:
            return [slice_of(str(terms[0]), node)]
        except BedplateError as fault:
            raise AnsibleError(str(fault)) from None


def slice_of(environment: str, node: str) -> dict[str, Any]:
    """The values of one node; what its kind has in common, and its files, are kept for the life of the process."""
    site = site_door.current()
    kind = _of_kind(environment, site.fleet.nodes[node].kind)
    return kind | {"files": files_of(rendered(site, environment, node))}


@cache
def _of_kind(environment: str, kind: str) -> dict[str, Any]:
    site = site_door.current()
    key = site.key_path(site.environment(environment).archive.key).read_bytes()
    chosen = roles(site, environment, kind)
    lock = locked(site, environment)
    around = site.surroundings
    above = lock.layers["scheduler"].get("controller", lock.name)
    return kind_values(lock, kind, key) | {
        "site": site.fleet.site,
        "controllers": around["fleet"]["environments"].get(above, []),
        "facts": dict(lock.facts(kind)),
        "gpus": around["models"][kind]["gpus"],
        "roles": [role.name for role in chosen],
        "preflights": [role.name for role in chosen if role.preflight],
        "replaces": {role.name: list(role.replaces) for role in chosen},
        "modules": sorted({module for role in chosen for module in role.modules}),
    }
