"""Action `bedplate_healthy`: asks one changed node how it is, until it is well or its patience is over.

After a boot links train, clocks are set and services register for some minutes: a first look is no verdict. The last
one is, and whatever is not known then is no pass.
"""

import time
from typing import Any

from ansible.plugins.action import ActionBase

from bedplate.decide.healthevents import judged
from bedplate.decide.healthresult import unwell
from bedplate.doors import site as site_door
from bedplate.model.faults import BedplateError
from bedplate.observe.health import look

PAUSE_S = 15.0


class ActionModule(ActionBase):
    _requires_connection = False
    _VALID_ARGS = frozenset({"environment", "patience_s"})

    def run(self, tmp: Any = None, task_vars: dict[str, Any] | None = None) -> dict[str, Any]:
        result: dict[str, Any] = super().run(tmp, task_vars) | {"changed": False}
        node = str((task_vars or {})["inventory_hostname"])
        environment, patience_s = str(self._task.args["environment"]), float(self._task.args["patience_s"])
        began, looks = time.monotonic(), 0
        try:
            site = site_door.current()
            while True:
                found, looks = look(site, {node: environment})[node], looks + 1
                why = unwell(node, found)
                if not why or time.monotonic() - began + PAUSE_S > patience_s:
                    break
                time.sleep(PAUSE_S)
        except BedplateError as fault:
            return result | {"failed": True, "msg": str(fault)}
        result |= {"looks": looks, "verdict": found.verdict}
        if (draft := judged(found)) is not None:
            result["bedplate_told"] = {"kind": draft.kind, "body": dict(draft.body)}
        if why:
            waited = f" (after {looks} looks in {time.monotonic() - began:.0f} s)" if looks > 1 else ""
            return result | {"failed": True, "msg": f"{why[0]}{waited}; look: bedplate health --nodes {node}"}
        return result
