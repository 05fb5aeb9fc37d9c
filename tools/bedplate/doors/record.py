"""Callback `bedplate_ledger`: writes every step of a rollout to the ledger, and judges each gate.

Ansible turns an exception in a callback into a warning; losing the ledger must end the run, so it becomes
SystemExit, which ends it (in the events of the main thread, the only ones used here).
"""

import functools
import re
import time
from collections.abc import Callable, Mapping
from typing import Any

from ansible.plugins.callback import CallbackBase

from bedplate.act import rollout
from bedplate.doors import site as site_door
from bedplate.doors.plan import there_already
from bedplate.ledger.store import Ledger
from bedplate.model.event import Draft
from bedplate.model.nodes import fold as fold_names

GATE, SOAK = "bedplate_gate", "bedplate_soak"
META = ("meta", "ansible.builtin.meta")
OF_THE_BATCH = (GATE, SOAK, "bedplate_same")
# Waiting for jobs, or for a batch to soak, is no work on the node that the task happens to name.
WAITING = (*OF_THE_BATCH, "bedplate_slurm_nodes")
CAUSE = re.compile(r"error|fail|unable|cannot|no space", re.IGNORECASE)
CAUSES = 5  # lines
APT_COMMAND = re.compile(r"^'/usr/bin/apt-get .*' failed: ")


def recording(method: Callable[..., None]) -> Callable[..., None]:
    """Run a method only while a rollout is open; any fault in it ends the run."""

    @functools.wraps(method)
    def wrapper(self: Any, *args: Any, **kwargs: Any) -> None:
        session = rollout.current
        if session is None or not self.active:
            return
        try:
            method(self, session, *args, **kwargs)
        except Exception as fault:
            raise SystemExit(f"ROLLOUT ABORTED: the ledger cannot be written: {fault!r}") from fault

    return wrapper


class CallbackModule(CallbackBase):
    CALLBACK_VERSION = 2.0
    CALLBACK_TYPE = "aggregate"
    CALLBACK_NAME = "bedplate_ledger"

    active = False

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self._began: dict[str, float] = {}  # node -> when its task began

    def v2_playbook_on_play_start(self, play: Any) -> None:
        session = rollout.current
        self.active = session is not None and list(play.hosts) == session.plan.nodes and bool(session.plan.nodes)
        if self.active and session is not None:
            self._next_batch()

    @recording
    def _next_batch(self, session: rollout.Session) -> None:
        session.next_batch()

    @recording
    def _task(self, session: rollout.Session, task: Any) -> None:
        session.flush()
        if task.action == GATE:
            session.judge()
        elif task.action == SOAK:
            session.to_soak()

    def v2_playbook_on_task_start(self, task: Any, is_conditional: bool) -> None:  # noqa: ARG002
        self._task(task)

    def v2_runner_on_start(self, host: Any, task: Any) -> None:
        if task.action not in WAITING:
            self._began[host.name] = time.monotonic()

    def _count(self, session: rollout.Session, node: str) -> None:
        began = self._began.pop(node, None)
        if began is not None:
            session.worked(node, time.monotonic() - began)

    def v2_runner_on_ok(self, result: Any) -> None:
        _outside_a_rollout(result)
        self._ok(result)

    @recording
    def _ok(self, session: rollout.Session, result: Any) -> None:
        node, body = result.host.name, result.result
        if result.task.action in OF_THE_BATCH:
            if "bedplate_soaked" in body:
                session.soaked(body["bedplate_soaked"])
            session.left(body.get("bedplate_left", {}))
            return
        self._count(session, node)
        session.result(node, _step(result), "changed" if body.get("changed") else "ok")
        _found(session, node, body)
        if body.get("bedplate_done"):
            session.done(node, body["manifest_sha256"], body.get("state_sha256", ""))

    def v2_runner_on_skipped(self, result: Any) -> None:
        self._skipped(result)

    @recording
    def _skipped(self, session: rollout.Session, result: Any) -> None:
        if result.task.action not in META:  # whether a node is left at once is no step of it
            session.result(result.host.name, _step(result), "skipped")

    def v2_runner_on_failed(self, result: Any, ignore_errors: bool = False) -> None:
        _outside_a_rollout(result)
        self._failed(result, ignore_errors=ignore_errors)

    @recording
    def _failed(self, session: rollout.Session, result: Any, *, ignore_errors: bool) -> None:
        node, body = result.host.name, result.result
        if result.task.action == GATE:
            return
        self._count(session, node)
        _found(session, node, body)
        if ignore_errors:
            session.result(node, _step(result), "ignored")
        else:
            session.failed(node, _step(result), _why(body), unreachable=False)

    def v2_runner_on_unreachable(self, result: Any) -> None:
        _outside_a_rollout(result)
        self._unreachable(result)

    @recording
    def _unreachable(self, session: rollout.Session, result: Any) -> None:
        node, body = result.host.name, result.result
        _found(session, node, body)
        session.failed(result.host.name, _step(result), _why(result.result), unreachable=True)

    def v2_playbook_on_stats(self, stats: Any) -> None:  # noqa: ARG002
        session = rollout.current
        if session is None:
            return
        self.active = True
        self._end()

    @recording
    def _end(self, session: rollout.Session) -> None:
        world = session.end()
        show = self._display.display
        asked = [node.name for node in session.readiness.nodes]
        by_status: dict[str, list[str]] = {}
        for name in asked:
            state = world.state(name)
            there = state.at_target(session.lock.identity)
            by_status.setdefault("runs " + session.lock.name if there else str(state.status), []).append(name)
        show(f"ROLLOUT {session.number} to {session.lock.name} ended" + (" (dry)" if session.dry else ""))
        if not session.plan.nodes:
            for line in there_already(session):
                show(f"  {line}")
            show("  nothing changed; to look at the nodes themselves: bedplate verify")
            return
        for status, names in sorted(by_status.items()):
            show(f"  {status}: {len(names)}: {fold_names(names)}")
        for step in rollout.next_for(session.readiness, session.plan, world, session.number):
            show(f"  next: {step}")
        record = world.rollouts.get(session.number)
        if record and record.outcome == "stopped":
            show(f"  STOPPED: {record.reason}")


def _outside_a_rollout(result: Any) -> None:
    """Record a verification that no rollout asked for: playbooks/verify.yml by itself."""
    body = result.result
    if rollout.current is not None or "bedplate_verified" not in body:
        return
    verified = body["bedplate_verified"]
    subjects = (f"node:{result.host.name}", f"environment:{verified['environment']}")
    try:
        with Ledger.open(site_door.current().ledger_url) as ledger:
            ledger.append(Draft("node.verified", subjects, verified, body["bedplate_identity"]))
    except Exception as fault:
        raise SystemExit(f"the ledger cannot be written: {fault}") from fault


def _found(session: rollout.Session, node: str, body: Mapping[str, Any]) -> None:
    """What actions found of a node, however their task ended."""
    if "bedplate_verified" in body:
        session.verified(node, body["bedplate_verified"])
    if "bedplate_told" in body:
        session.told(node, **body["bedplate_told"])


def _step(result: Any) -> str:
    return str(result.task.get_name())


def _why(body: dict[str, Any]) -> str:
    """What a module said went wrong, once: many repeat stderr in their message."""
    said: list[str] = []
    for key in ("msg", "stderr"):
        # The apt module begins with its command line, hundreds of characters before the cause.
        text = APT_COMMAND.sub("apt-get failed: ", str(body.get(key) or "").strip())
        if text and not any(text in earlier for earlier in said):
            said.append(text)
    # Package managers and installers say the cause on stdout and a code on stderr.
    causes = [line.strip() for line in str(body.get("stdout") or "").splitlines() if CAUSE.search(line)]
    said += causes[:CAUSES]
    return ": ".join(said) or f"rc {body.get('rc')}"
