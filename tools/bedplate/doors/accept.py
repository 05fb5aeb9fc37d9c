"""Action `bedplate_accept`: asks one node questions of the acceptance; the main process records what it returns."""

from typing import Any

from ansible.plugins.action import ActionBase

from bedplate.act.acceptance import Wanted, look
from bedplate.decide.acceptancegate import node_engine
from bedplate.doors import site as site_door
from bedplate.model.faults import BedplateError


class ActionModule(ActionBase):
    _requires_connection = False
    _VALID_ARGS = frozenset({"environment", "questions"})

    def run(self, tmp: Any = None, task_vars: dict[str, Any] | None = None) -> dict[str, Any]:
        result: dict[str, Any] = super().run(tmp, task_vars)
        node = str((task_vars or {})["inventory_hostname"])
        environment, questions = str(self._task.args["environment"]), tuple(self._task.args["questions"])
        try:
            site = site_door.current()
            site.refuse_example("ask nodes")
            engine = node_engine(site.lock(environment), site.fleet.nodes[node].kind)
            answered, draft = look(site, node, Wanted(environment, engine, questions=questions))
        except BedplateError as fault:
            return result | {"failed": True, "msg": str(fault)}
        result |= {
            "changed": False,
            "bedplate_told": {"kind": draft.kind, "body": dict(draft.body)},
        }
        if not answered.accepted:
            where = f" (look at {answered.look_at})" if answered.look_at else ""
            return result | {"failed": True, "msg": f"{answered.verdict}: {answered.why}{where}"}
        return result
