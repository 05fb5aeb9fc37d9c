"""Action `bedplate_soak`: lets a batch stand for a while, then asks whether its nodes are still the lock's."""

import time
from typing import Any

from ansible.plugins.action import ActionBase

from bedplate.act import rollout
from bedplate.model.faults import BedplateError
from bedplate.observe.verify import verify


class ActionModule(ActionBase):
    """Never fails: what it finds is recorded by the main process, and the gate behind it judges the fleet."""

    BYPASS_HOST_LOOP = True
    _requires_connection = False
    _VALID_ARGS: frozenset[str] = frozenset()

    def run(self, tmp: Any = None, task_vars: dict[str, Any] | None = None) -> dict[str, Any]:
        result: dict[str, Any] = super().run(tmp, task_vars)
        session = rollout.current
        soak = session.soak if session else rollout.Soak()
        if session is None or not soak.nodes:
            return result | {"changed": False}
        time.sleep(soak.wait_s)
        name = session.lock.name
        try:
            found = verify(session.site, dict.fromkeys(soak.nodes, name))
            said = {node: each.body() for node, each in found.items()}
        except BedplateError as fault:
            # Nothing is known of them any more: each is an error, and counts as one.
            why = {"environment": name, "verdict": "ERROR", "why": str(fault), "checks": [], "facts": {}}
            said = dict.fromkeys(soak.nodes, why)
        return result | {"changed": False, "waited_s": round(soak.wait_s), "bedplate_soaked": said}
