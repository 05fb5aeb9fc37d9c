"""Action `bedplate_soak`: lets a batch stand for a while, then asks if its nodes are still the lock's, and well.

One of which something bad is known gets no more jobs: it is drained, with the rollout's reason, and its jobs go on.
What is only unknown counts as bad and is not drained: the fault may be here, and the batch is large.
"""

import time
from collections.abc import Mapping, Sequence
from typing import Any

from ansible.plugins.action import ActionBase

from bedplate.act import rollout
from bedplate.act.slurm import slurm_of
from bedplate.decide.fold import DRAINED_NOW
from bedplate.decide.healthevents import judged
from bedplate.decide.healthresult import unwell
from bedplate.decide.verification import ERROR, FAIL, PASS
from bedplate.model.faults import BedplateError
from bedplate.observe.health import look
from bedplate.observe.verify import verify
from bedplate_agent import verdict
from bedplate_agent.sinks import Result

PAUSE_S = 15.0


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
        try:
            said = look_again(session, soak.nodes)
        except Exception as fault:  # noqa: BLE001  no room for a report, no program to ask with
            # Nothing is known of them any more: each is an error, and counts as one. A task that fails would say so
            # of the next batch, whose nodes nobody has touched.
            found = str(fault) if isinstance(fault, BedplateError) else repr(fault)
            why = {"environment": session.lock.name, "verdict": ERROR, "why": found, "checks": [], "facts": {}}
            said = dict.fromkeys(soak.nodes, why)
        else:
            drain(session, said)
        return result | {"changed": False, "waited_s": round(soak.wait_s), "bedplate_soaked": said}


def look_again(session: rollout.Session, nodes: Sequence[str]) -> dict[str, dict[str, Any]]:
    """Bodies of node.verified: each node held against its lock, and asked how it is where its environment says so."""
    name = session.lock.name
    said = {node: each.body() for node, each in verify(session.site, dict.fromkeys(nodes, name)).items()}
    session.refuse_other_lock()
    asked = [
        node for node, body in said.items()
        if body["verdict"] == PASS and rollout.asks_health(session.site, name, session.site.fleet.nodes[node].kind)
    ]  # fmt: skip
    for node, found in _health(session, asked).items():
        if why := unwell(node, found):
            draft = judged(found)
            said[node] |= {
                "verdict": FAIL if found.verdict == verdict.FAIL else ERROR, "why": f"health: {why[0]}",
                "health": dict(draft.body) if draft else {},
            }  # fmt: skip
    return said


def drain(session: rollout.Session, said: Mapping[str, dict[str, Any]]) -> None:
    """Take those that failed from Slurm, where it has them; that it was done stands in their bodies, or why not."""
    site, name = session.site, session.lock.name
    bad = [
        node for node, body in said.items()
        if body["verdict"] == FAIL and rollout.in_slurm(site, name, site.fleet.nodes[node].kind)
    ]  # fmt: skip
    if not bad:
        return
    try:
        left = slurm_of(site, [name]).drain(dict.fromkeys(bad, session.drain_reason))
    except Exception as fault:  # noqa: BLE001  what was found must be recorded, whatever Slurm says
        left = dict.fromkeys(bad, str(fault) if isinstance(fault, BedplateError) else repr(fault))
    for node in bad:
        why = left[node]
        said[node] |= {DRAINED_NOW: not why} | ({"why": f"{said[node]['why']}; not drained: {why}"} if why else {})


def _health(session: rollout.Session, nodes: Sequence[str]) -> dict[str, Result]:
    """A second look at those whose first one was no good: jobs may run there by now, and a look may meet a moment."""
    found = look(session.site, dict.fromkeys(nodes, session.lock.name)) if nodes else {}
    again = [node for node, result in found.items() if unwell(node, result)]
    if again:
        time.sleep(PAUSE_S)
        found |= look(session.site, dict.fromkeys(again, session.lock.name))
    return found
