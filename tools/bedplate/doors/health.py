"""Lookup `bedplate_health`: the node agent as a file on the controller, and what a node must show under a lock."""

import json
from functools import cache
from pathlib import Path
from typing import Any

from ansible.errors import AnsibleError
from ansible.plugins.lookup import LookupBase

from bedplate.decide.healthexpect import expectation, of_node
from bedplate.doors import site as site_door
from bedplate.model.faults import BedplateError
from bedplate.observe.agentfile import agent, agent_sha256
from bedplate.sources.files import write_whole
from bedplate_agent.registry import every


class LookupModule(LookupBase):
    def run(self, terms: list[Any], variables: dict[str, Any] | None = None, **kwargs: Any) -> list[Any]:  # noqa: ARG002
        node = str((variables or {})["inventory_hostname"])
        try:
            return [{"program": str(_program()), "profile": _profile(str(terms[0]), node)}]
        except (BedplateError, OSError) as fault:
            raise AnsibleError(str(fault)) from None


@cache
def _program() -> Path:
    """The agent in this user's cache, by its hash."""
    path = Path.home() / ".cache" / "bedplate" / f"health-agent-{agent_sha256().removeprefix('sha256:')[:16]}.pyz"
    if not path.is_file() or path.read_bytes() != agent():
        path.parent.mkdir(parents=True, exist_ok=True)
        write_whole(path, agent(), mode=0o755)
    return path


def _profile(environment: str, node: str) -> str:
    machine = site_door.current().fleet.nodes[node]
    return json.dumps(of_node(_of_kind(environment, machine.kind), machine), indent=1, sort_keys=True) + "\n"


@cache
def _of_kind(environment: str, kind: str) -> dict[str, Any]:
    site = site_door.current()
    model = site.fleet.kinds[kind].model
    checks = {check.id: check.expects for check in every()}
    return expectation(kind, site.model(model), site.health_profile(model), site.lock(environment), checks)
