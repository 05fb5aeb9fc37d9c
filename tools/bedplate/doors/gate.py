"""Action `bedplate_gate`: passes on the verdict that the main process reached as this task started."""

from typing import Any

from ansible.plugins.action import ActionBase

from bedplate.act import rollout


class ActionModule(ActionBase):
    """No verdict, or one for other nodes, means that the ledger is not being written: stop."""

    BYPASS_HOST_LOOP = True
    _requires_connection = False
    _VALID_ARGS: frozenset[str] = frozenset()

    def run(self, tmp: Any = None, task_vars: dict[str, Any] | None = None) -> dict[str, Any]:
        result: dict[str, Any] = super().run(tmp, task_vars)
        session = rollout.current
        verdict = session.verdict if session else None
        here = (task_vars or {})["ansible_play_batch"]
        if verdict is None:
            return result | {"failed": True, "msg": "ROLLOUT STOPPED: the ledger did not judge this batch"}
        if not set(here) <= set(verdict.nodes):
            return result | {"failed": True, "msg": "ROLLOUT STOPPED: the batch is not the planned one"}
        if not verdict.go:
            return result | {
                "failed": True,
                "msg": f"ROLLOUT STOPPED at batch {verdict.batch + 1}: {verdict.reason}",
            }
        return result | {"changed": False, "batch": verdict.batch + 1, "size": len(here)}
