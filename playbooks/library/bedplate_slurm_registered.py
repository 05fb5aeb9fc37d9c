#!/usr/bin/python
"""Nodes that Slurm refuses since its configuration changed."""

from __future__ import annotations

import json
import subprocess
import time
from typing import Any

from ansible.module_utils.basic import AnsibleModule

DOCUMENTATION = r"""
module: bedplate_slurm_registered
short_description: Nodes whose registration slurmctld refuses since its configuration changed
description:
  - Runs where slurmctld runs; changes nothing. Without I(before) it says how the nodes are, and none where slurmctld
    does not answer, as before its first start.
  - With I(before) it waits until the nodes that answered then have started slurmd again, as a reconfiguration makes
    them do, and fails if Slurm calls one of them INVALID_REG that it did not call so before. Such a node runs no job
    until its definition and it agree, and says so nowhere but in C(sinfo). A node that does not start slurmd again in
    time is warned of.
options:
  before: {description: What an earlier call returned as I(nodes)., type: dict, default: {}}
  patience_s: {description: How long to wait for nodes to register., type: int, default: 60}
author: [Bedplate]
"""

EXAMPLES = r"""
- name: Look at the nodes as they are
  bedplate_slurm_registered:
  register: earlier
- name: Refuse a configuration that nodes do not fit
  bedplate_slurm_registered:
    before: "{{ earlier.nodes }}"
"""

RETURN = r"""
nodes: {description: "Node to its state (flags), reason and started, when slurmd began.", returned: always, type: dict}
"""

POLL_S = 1
DEADLINE_S = 60  # for one command: a controller with a full queue takes some seconds
REFUSED, SILENT = "INVALID_REG", {"NOT_RESPONDING", "UNKNOWN", "POWERED_DOWN", "FUTURE"}
MOST_SHOWN = 10


class NoAnswer(Exception):
    """Slurm does not answer."""


def look() -> dict[str, dict[str, Any]]:
    """Every node: its state, reason and when its slurmd began."""
    asked = ["scontrol", "show", "nodes", "--json"]
    try:
        done = subprocess.run(asked, check=False, capture_output=True, text=True, errors="replace", timeout=DEADLINE_S)
        if done.returncode:
            raise NoAnswer(f"scontrol ended with {done.returncode}: {(done.stderr or done.stdout).strip()}")
        nodes = json.loads(done.stdout)["nodes"]
        return {
            node["name"]: {
                "state": [str(flag).upper() for flag in node["state"]], "reason": str(node.get("reason") or ""),
                "started": _number(node.get("slurmd_start_time")),
            }
            for node in nodes
        }  # fmt: skip
    except subprocess.TimeoutExpired as fault:
        raise NoAnswer(f"scontrol did not end within {DEADLINE_S} s") from fault
    except (OSError, ValueError, KeyError, TypeError) as fault:
        raise NoAnswer(f"{type(fault).__name__}: {fault}") from fault


def _number(said: Any) -> int:
    """A time as Slurm writes it: a number, or {"set": true, "number": 1}."""
    return int(said["number"] if isinstance(said, dict) else said or 0)


def waiting(before: dict[str, dict[str, Any]], now: dict[str, dict[str, Any]]) -> list[str]:
    """Nodes that answered before and have not started again since."""
    return [
        name
        for name, node in before.items()
        if name in now and not SILENT & set(node["state"]) and now[name]["started"] == node["started"]
    ]


def refused(before: dict[str, dict[str, Any]], now: dict[str, dict[str, Any]]) -> list[str]:
    """Nodes that Slurm refuses now, and did not before."""
    return [
        name
        for name, node in now.items()
        if REFUSED in node["state"] and REFUSED not in before.get(name, node)["state"]
    ]


def main() -> None:
    module = AnsibleModule(
        {"before": {"type": "dict", "default": {}}, "patience_s": {"type": "int", "default": 60}},
        supports_check_mode=True,
    )
    before, patience_s = module.params["before"], module.params["patience_s"]
    try:
        now = look()
        deadline = time.monotonic() + patience_s
        while waiting(before, now) and time.monotonic() < deadline:
            time.sleep(POLL_S)
            now = look()
    except NoAnswer as fault:
        if before:
            module.fail_json(msg=f"Slurm does not answer here: {fault}")
        now = {}
    wrong = refused(before, now)
    if wrong:
        told = "; ".join(f"{name} ({now[name]['reason'] or 'no reason given'})" for name in wrong[:MOST_SHOWN])
        more = f"; and {len(wrong) - MOST_SHOWN} more" if len(wrong) > MOST_SHOWN else ""
        module.fail_json(
            msg=f"Slurm refuses {len(wrong)} nodes since this change (INVALID_REG), and gives them no job:"
            f" {told}{more}. They are not what the new slurm.conf and gres.conf say: correct the model, or go back",
            nodes=now,
        )  # fmt: skip
    if late := waiting(before, now):
        module.warn(
            f"{len(late)} nodes did not register again within {patience_s} s, so whether they fit is not known:"
            f" {', '.join(late[:MOST_SHOWN])}"
        )
    module.exit_json(changed=False, nodes=now)


if __name__ == "__main__":
    main()
