"""Action `bedplate_same`: which nodes of a batch are still what they were when they were proven to be the lock's?

A node that is at the target already, and whose own digest of its state is the one that it had when its last change
ended under this lock, is done with it: verified, and left at once. Everybody else goes on. The batch is asked at once,
by one process: a task of Ansible's for each node costs the controller more than all else in a rollout without changes.
"""

from typing import Any

from ansible.plugins.action import ActionBase

from bedplate.act import rollout
from bedplate.decide.statedigest import Digested, digested
from bedplate.decide.verification import PASS, Row, judge_node
from bedplate.observe.statedigest import ask_digests


class ActionModule(ActionBase):
    """Never fails: a node that does not answer here is met by the next task, which says so."""

    BYPASS_HOST_LOOP = True
    _requires_connection = False
    _VALID_ARGS: frozenset[str] = frozenset()
    _supports_check_mode = True

    def run(self, tmp: Any = None, task_vars: dict[str, Any] | None = None) -> dict[str, Any]:
        result: dict[str, Any] = super().run(tmp, task_vars) | {"changed": False, "left": []}
        session = rollout.current
        here = [] if session is None else [n for n in (task_vars or {})["ansible_play_batch"] if n in session.proven]
        if session is None or not here:
            return result
        left, others = {}, {}
        for node, now in ask_digests(session.site, {node: program(session, node) for node in here}).items():
            proven = session.proven[node]
            if isinstance(now, Digested) and now.sha256 == proven.sha256:
                left[node] = _done(session, node, proven)
            else:
                others[node] = now if isinstance(now, str) else "its state is another one than was proven"
        return result | {"left": sorted(left), "bedplate_left": left, "others": others}


def program(session: rollout.Session, node: str) -> str:
    """What a node runs to digest its state."""
    files = [file.path for file in rollout.rendered(session.site, session.lock.name, node)]
    roles = rollout.roles(session.site, session.lock.name, session.site.fleet.nodes[node].kind)
    return digested(
        files, units=sorted({unit for role in roles for unit in role.units}),
        modules=sorted({module for role in roles for module in role.modules}),
    )  # fmt: skip


def _done(session: rollout.Session, node: str, proven: Digested) -> dict[str, Any]:
    row = Row(node, "state digest", "os", PASS, f"as it was proven: {proven.sha256[:19]}")
    verified = judge_node(node, session.lock.name, [row], proven.facts)
    return {"verified": verified.body(), "manifest_sha256": proven.manifest_sha256, "state_sha256": proven.sha256}
