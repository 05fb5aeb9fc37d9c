"""Action `bedplate_verify`: holds one node against its lock; the main process records what it returns."""

from typing import Any

from ansible.plugins.action import ActionBase

from bedplate.act import rollout
from bedplate.decide.verification import PASS, UNREACHABLE
from bedplate.doors import site as site_door
from bedplate.model.faults import BedplateError, NodesFailed
from bedplate.observe.running import running
from bedplate.observe.verify import verify


class ActionModule(ActionBase):
    _requires_connection = False
    _VALID_ARGS = frozenset({"environment"})

    def run(self, tmp: Any = None, task_vars: dict[str, Any] | None = None) -> dict[str, Any]:
        result: dict[str, Any] = super().run(tmp, task_vars)
        node = str((task_vars or {})["inventory_hostname"])
        session = rollout.current
        try:
            if session is not None and node in session.late:
                raise NodesFailed(session.late[node])
            site = site_door.current()
            site.refuse_example("verify nodes")
            environment = self._task.args.get("environment") or running(site).get(node)
            if not environment:
                why = f"the ledger has no environment for {node}: name one with -e target=ENVIRONMENT"
                covered = any(
                    site.fleet.nodes[node].kind in site.environment(e).kinds for e in site.environment_names()
                )
                if covered:
                    return result | {"failed": True, "msg": why}
                return result | {
                    "skipped": True,
                    "msg": f"no environment is for nodes of kind {site.fleet.nodes[node].kind}",
                }
            found = verify(site, {node: str(environment)})[node]
            if session is not None:
                session.refuse_other_lock()
        except BedplateError as fault:
            return result | {"failed": True, "msg": str(fault)}
        result |= {
            "changed": False,
            "bedplate_verified": found.body(),
            "bedplate_identity": site.lock(found.environment).identity,
        }
        if found.verdict == UNREACHABLE:
            return result | {"unreachable": True, "msg": found.why}
        if found.verdict != PASS:
            return result | {"failed": True, "msg": f"{found.verdict}: {found.why}"}
        return result
