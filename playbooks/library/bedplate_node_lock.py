#!/usr/bin/python
"""The node's own lock: remote commands outlive a killed controller, and no lock of a controller can see that."""

from __future__ import annotations

import datetime
import fcntl
import json
import os
import time
from typing import Any

from ansible.module_utils.basic import AnsibleModule

DOCUMENTATION = r"""
module: bedplate_node_lock
short_description: Take or release the lock that says which rollout changes this node
description:
  - The lock is a file under C(/run), so that a reboot ends it. It names the rollout that holds it.
  - Before the lock of another rollout is taken over, every process that this rollout started on the node must
    have ended; they are known by C(BEDPLATE_ROLLOUT) in their environment, which the play sets.
  - The lock of a rollout that the ledger does not know as ended or abandoned is never taken over.
options:
  rollout: {description: Which rollout takes the lock., type: str, required: true}
  ended: {description: Rollouts of this ledger that ended or were abandoned., type: list, elements: str, default: []}
  state: {description: Take or release it., type: str, choices: [taken, released], default: taken}
  path: {description: The lock file., type: path, default: /run/bedplate/lock}
  wait_s: {description: How long to wait for processes of another rollout to end., type: int, default: 120}
author: [Bedplate]
"""

EXAMPLES = r"""
- name: Take the node's lock
  bedplate_node_lock:
    rollout: 7-0c41f8a2b9d3
    ended: [6-77aa01bc34de]
"""

RETURN = r"""
took_over: {description: The rollout whose lock was taken over., returned: when there was one, type: str}
waited_s: {description: How long processes of that rollout took to end., returned: when there was one, type: float}
"""

MARK = b"BEDPLATE_ROLLOUT="


def processes_of(rollout: str) -> list[dict[str, Any]]:
    """Processes on this node that a rollout started, this one and its parents apart."""
    mine = ancestors(os.getpid())
    found = []
    for name in os.listdir("/proc"):
        if not name.isdigit() or int(name) in mine:
            continue
        try:
            with open(f"/proc/{name}/environ", "rb") as handle:
                environ = handle.read().split(b"\0")
            with open(f"/proc/{name}/cmdline", "rb") as handle:
                words = handle.read().replace(b"\0", b" ").decode(errors="replace").strip()
        except OSError:
            continue  # it ended meanwhile
        if MARK + rollout.encode() in environ and words:
            found.append({"pid": int(name), "command": words[:200]})
    return found


def ancestors(pid: int) -> set[int]:
    chain = set()
    while pid > 1 and pid not in chain:
        chain.add(pid)
        try:
            with open(f"/proc/{pid}/stat") as handle:
                pid = int(handle.read().rpartition(")")[2].split()[1])
        except (OSError, ValueError, IndexError):
            break
    return chain


def read(handle: Any) -> dict[str, Any]:
    handle.seek(0)
    try:
        held = json.loads(handle.read() or "{}")
    except ValueError:
        return {"rollout": "?", "since": "?"}  # torn: whose it was is unknown, so it is nobody's to take
    return held if isinstance(held, dict) else {"rollout": "?", "since": "?"}


def write(handle: Any, about: dict[str, Any]) -> None:
    handle.seek(0)
    handle.truncate()
    if about:
        handle.write(json.dumps(about))
    handle.flush()
    os.fsync(handle.fileno())


def take(module: AnsibleModule, handle: Any) -> dict[str, Any]:
    rollout = module.params["rollout"]
    held = read(handle)
    holder = held.get("rollout")
    result: dict[str, Any] = {"changed": False}
    if holder == rollout:
        return result
    if holder:
        if holder not in module.params["ended"]:
            module.fail_json(
                msg=f"this node is being changed by rollout {holder}, since {held.get('since')}; this is rollout "
                f"{rollout} and its ledger does not know that the other ended: look on the controller that runs "
                f"it; if it is gone for good, remove {module.params['path']} on the node"
            )
        began = time.monotonic()
        while True:
            alive = processes_of(holder)
            if not alive:
                break
            if time.monotonic() - began > module.params["wait_s"]:
                names = "; ".join(f"{p['pid']}: {p['command']}" for p in alive)
                module.fail_json(
                    msg=f"rollout {holder} was killed, but its commands still run on this node: {names}: wait for "
                    "their end, or end them, then run the same command again",
                    processes=alive,
                )
            time.sleep(0.5)
        result |= {"took_over": holder, "waited_s": round(time.monotonic() - began, 1)}
    if not module.check_mode:
        now = datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds")
        write(handle, {"rollout": rollout, "since": now})
    return result


def main() -> None:
    module = AnsibleModule(
        {
            "rollout": {"type": "str", "required": True},
            "ended": {"type": "list", "elements": "str", "default": []},
            "state": {"type": "str", "choices": ["taken", "released"], "default": "taken"},
            "path": {"type": "path", "default": "/run/bedplate/lock"},
            "wait_s": {"type": "int", "default": 120},
        },
        supports_check_mode=True,
    )
    path = module.params["path"]
    if module.check_mode and not os.path.exists(path):
        module.exit_json(changed=False)
    if not module.check_mode:
        os.makedirs(os.path.dirname(path), mode=0o755, exist_ok=True)
    flags = os.O_RDONLY if module.check_mode else os.O_RDWR | os.O_CREAT
    with open(os.open(path, flags, 0o644), "r" if module.check_mode else "r+") as handle:
        # Held while the file is read and written: two controllers cannot both find it free.
        fcntl.flock(handle, fcntl.LOCK_EX)
        if module.params["state"] == "taken":
            module.exit_json(**take(module, handle))
        if read(handle).get("rollout") == module.params["rollout"] and not module.check_mode:
            write(handle, {})
        module.exit_json(changed=False)


if __name__ == "__main__":
    main()
