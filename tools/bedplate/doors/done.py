"""Action `bedplate_done`: the last task of a node; its result tells the ledger that the node is done."""

from typing import Any

from ansible.plugins.action import ActionBase

from bedplate.act import rollout
from bedplate.decide.render import manifest_sha256
from bedplate.decide.statedigest import Digested, parse_digest
from bedplate.doors.same import program


class ActionModule(ActionBase):
    _VALID_ARGS: frozenset[str] = frozenset()
    _supports_check_mode = True

    def run(self, tmp: Any = None, task_vars: dict[str, Any] | None = None) -> dict[str, Any]:
        result: dict[str, Any] = super().run(tmp, task_vars)
        session = rollout.current
        if session is None:
            return result | {"failed": True, "msg": "no rollout is open in this process"}
        node = str((task_vars or {})["inventory_hostname"])
        if node in session.late:
            return result | {"failed": True, "msg": session.late[node]}
        files = rollout.rendered(session.site, session.lock.name, node)
        state = {} if session.dry else self._state(session, node)
        return result | {
            "changed": False, "bedplate_done": True, "manifest_sha256": manifest_sha256(files), **state,
        }  # fmt: skip

    def _state(self, session: rollout.Session, node: str) -> dict[str, str]:
        """The digest of its state; without one nothing is lost but time: the next rollout sets all of the node."""
        # Ansible's own way for its actions: by the connection that the node was changed through.
        said = self._low_level_execute_command(program(session, node), sudoable=True)
        found = parse_digest(said["stdout"]) if not said["rc"] else None
        return {"state_sha256": found.sha256} if isinstance(found, Digested) else {}
