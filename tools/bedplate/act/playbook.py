"""Runs a playbook and follows it in the ledger while it runs; judges its end by the ledger, not by its exit code."""

import json
import os
import secrets
import shutil
import subprocess
import sys
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path

from bedplate.act import controllerlock
from bedplate.decide.fold import BAD, RolloutState, World, fold
from bedplate.ledger import projection
from bedplate.ledger.store import Ledger
from bedplate.model.faults import BedplateError, Busy, NodesFailed, Refused
from bedplate.model.nodes import fold as fold_names
from bedplate.sources import checkout
from bedplate.sources.site import Site

POLL_S = 0.5


@dataclass(frozen=True)
class Outcome:
    """The end of a rollout: what the ledger says of it, and the log of ansible-playbook."""

    record: RolloutState
    world: World
    log: Path
    seconds: float


def ansible_playbook() -> str:
    """The program beside this Python, else the one on PATH."""
    beside = Path(sys.executable).with_name("ansible-playbook")
    found = str(beside) if beside.exists() else shutil.which("ansible-playbook")
    if found is None:
        raise BedplateError("no program ansible-playbook (run: tools/setup)")
    return found


def run_rollout(
    site: Site, playbook: str, extra: Mapping[str, str], limit: str | None, follow: Callable[[World, int], None]
) -> Outcome:
    """Run playbooks/PLAYBOOK to its end; follow is called with the folded ledger while it runs.

    Raises:
        Busy: another rollout runs. BedplateError: it ended before it began; carries the end of its log.
    """
    busy = controllerlock.holder(controllerlock.place(site))
    if busy:
        raise Busy(busy)
    token = secrets.token_hex(8)
    logs = site.root / "logs"
    logs.mkdir(exist_ok=True)
    log = logs / f"{time.strftime('%Y%m%dT%H%M%SZ', time.gmtime())}-{playbook}-{extra['target']}.log"
    argv = [ansible_playbook(), "-i", str(site.fleet_path), f"playbooks/{playbook}.yml", "-e"]
    argv.append(json.dumps(extra))  # as JSON: -e reason=TEXT ends at the first space
    if limit:
        argv += ["--limit", limit]
    began = time.monotonic()
    with log.open("wb") as out:
        process = subprocess.Popen(
            argv, cwd=checkout.root(), stdin=subprocess.DEVNULL, stdout=out, stderr=subprocess.STDOUT,
            env=os.environ | {"BEDPLATE_TOKEN": token, "ANSIBLE_NOCOLOR": "1", "ANSIBLE_FORCE_COLOR": "0"},
        )  # fmt: skip
        try:
            world = _follow(site, process, token, follow)
        except BaseException:
            process.terminate()  # Ctrl-C: nodes of the batch in flight are in doubt, and the ledger says so
            process.wait()
            raise
    record = _of(world, token)
    if record is None:
        text = log.read_text(errors="replace").strip()
        refused = [line for line in text.splitlines() if line.startswith("[ERROR]")]
        raise BedplateError(f"the rollout did not begin:\n{chr(10).join(refused) or text[-2000:]}\n  log: {log}")
    return Outcome(record, world, log, time.monotonic() - began)


def _follow(site: Site, process: "subprocess.Popen[bytes]", token: str, follow: Callable[[World, int], None]) -> World:
    """The world at its end. That nobody can be shown how it goes is no reason to leave nodes in the middle."""
    unread: Exception | None = None
    unshown: Exception | None = None
    with Ledger.read(site.ledger_url) as ledger:
        world = projection.world(ledger)
        while True:
            ended = process.poll() is not None
            try:
                world, unread = fold(ledger.events(after=world.head), world), None
            except Exception as fault:  # noqa: BLE001  raised at the end, if it lasts until then
                unread = fault
            record = _of(world, token)
            try:
                if record is not None and unshown is None:
                    follow(world, record.number)
            except Exception as fault:  # noqa: BLE001  a pipe without a reader; raised at the end
                unshown = fault
            if ended:
                if trouble := unread or unshown:
                    raise trouble
                return world
            time.sleep(POLL_S)


def _of(world: World, token: str) -> RolloutState | None:
    return next((r for r in reversed(list(world.rollouts.values())) if r.body.get("token") == token), None)


def judge_end(outcome: Outcome, asked: list[str], identity: str) -> None:
    """Raise what the end of a rollout means for its caller; nothing when every node runs the target.

    Raises:
        Refused: policy stopped it. NodesFailed: nodes are bad, in doubt, or were never begun.
    """
    record, world = outcome.record, outcome.world
    left = [name for name in asked if not world.state(name).at_target(identity)]
    if record.outcome == "stopped":
        raise Refused(f"rollout {record.number} stopped: {record.reason}\n  log: {outcome.log}")
    if record.ended is None:
        raise NodesFailed(
            f"rollout {record.number} was cut off: in doubt or not begun: {fold_names(left)}; the same command goes on"
            f"\n  log: {outcome.log}"
        )
    if left:
        why = "\n".join(f"  {name}: {_state_of(world, name)}" for name in left)
        raise NodesFailed(f"rollout {record.number} left out {fold_names(left)}:\n{why}\n  log: {outcome.log}")


def _state_of(world: World, name: str) -> str:
    state = world.state(name)
    if state.status not in BAD:
        return f"not begun, {state.status}"
    return f"{state.status} at {state.step!r}: {state.why}" if state.step else str(state.status)
