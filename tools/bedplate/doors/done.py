"""Action `bedplate_done`: the last task of a node; its result tells the ledger that the node is done."""

from typing import Any

from ansible.plugins.action import ActionBase

from bedplate.act import rollout
from bedplate.decide.render import manifest_sha256


class ActionModule(ActionBase):
    _requires_connection = False
    _VALID_ARGS: frozenset[str] = frozenset()
    _supports_check_mode = True

    def run(self, tmp: Any = None, task_vars: dict[str, Any] | None = None) -> dict[str, Any]:
        result: dict[str, Any] = super().run(tmp, task_vars)
        session = rollout.current
        if session is None:
            return result | {"failed": True, "msg": "no rollout is open in this process"}
        files = rollout.rendered(session.site, session.lock.name, str((task_vars or {})["inventory_hostname"]))
        return result | {"changed": False, "bedplate_done": True, "manifest_sha256": manifest_sha256(files)}
