#!/usr/bin/python
"""Nodes out of Slurm and back into it, from a controller, for a whole batch in one task."""

from __future__ import annotations

import json
import re
import subprocess
import time
from typing import Any

from ansible.module_utils.basic import AnsibleModule

DOCUMENTATION = r"""
module: bedplate_slurm_nodes
short_description: Drain nodes and wait for their jobs, or give back those that were drained here
description:
  - Runs where slurmctld runs, for all nodes of a batch, and answers for each of them. It fails only if Slurm does not
    answer; what is wrong with one node is that node's C(trouble).
  - C(drained) sets DRAIN with I(reason) on nodes that are not drained, and waits until none of them runs a job. Jobs
    are never ended. A node whose jobs do not end in time gets back what it had, and trouble. So has one that somebody
    resumes meanwhile, or that waits for a reboot that somebody asked Slurm for.
  - A node that is drained for any other reason, or that a person set DOWN or FAIL, keeps it, and is not given back by
    C(returned). So does one that somebody gave a reason of their own while its jobs were waited for.
  - C(returned) resumes nodes whose reason begins with I(ours), once they are registered and whole in Slurm's eyes.
    That is a change where somebody else's run had drained them; what was drained for I(reason) is as it was before.
options:
  nodes: {description: Names., type: list, elements: str, required: true}
  state: {description: What to do., type: str, choices: [drained, returned], required: true}
  reason: {description: The reason of this run's drain; begins with I(ours)., type: str, required: true}
  ours: {description: How every reason begins that was set here., type: str, default: "bedplate:"}
  patience_s: {description: How long to wait for jobs to end or for nodes to register., type: int, default: 600}
author: [Bedplate]
"""

EXAMPLES = r"""
- name: Drain
  bedplate_slurm_nodes:
    nodes: [n1, n2]
    state: drained
    reason: "bedplate: rollout 7 to B"
"""

RETURN = r"""
nodes:
  description: >-
    Node to whose the drain is (ours, theirs, none), state (flags), reason, jobs (ID USER NAME) and trouble (or empty).
  returned: always
  type: dict
"""

POLL_S = 2
DEADLINE_S = 60  # for one command: a controller with a full queue takes some seconds
SLURM_USER = "slurm"  # SlurmUser of slurm.conf
BUSY = {"ALLOCATED", "MIXED", "COMPLETING"}
# A reboot that somebody asked of Slurm, and that comes as soon as the node has no job: in the middle of a change.
REBOOTING = {"REBOOT_REQUESTED", "REBOOT_ISSUED"}
# Slurm's own judgement of a node: resuming it would only hide this.
NOT_WHOLE = {"NOT_RESPONDING", "INVALID_REG", "UNKNOWN", "FAIL", "POWERED_DOWN", "REBOOT_ISSUED", "FUTURE"}


class NoAnswer(Exception):
    """Slurm does not answer."""


def slurm(*words: str) -> str:
    try:
        done = subprocess.run(
            words, check=False, capture_output=True, text=True, errors="replace", timeout=DEADLINE_S
        )  # fmt: skip
    except (OSError, subprocess.TimeoutExpired) as fault:
        raise NoAnswer(f"{' '.join(words)}: {fault}") from fault
    if done.returncode:
        raise NoAnswer(f"{' '.join(words)} ended with {done.returncode}: {(done.stderr or done.stdout).strip()}")
    return done.stdout


def look(names: list[str]) -> dict[str, dict[str, Any]]:
    """Node -> its state (flags, in capitals) and reason; without those that Slurm does not know."""
    # All nodes, and not these: one unknown name would be an error for all of them.
    document = json.loads(slurm("scontrol", "show", "nodes", "--json"))
    wanted = set(names)
    return {
        node["name"]: {
            "state": [str(flag).upper() for flag in node["state"]], "reason": str(node.get("reason") or ""),
            "by": str(node.get("reason_set_by_user") or ""),
        }
        for node in document["nodes"]
        if node["name"] in wanted
    }  # fmt: skip


def jobs(name: str) -> list[str]:
    return slurm("squeue", "--noheader", f"--nodelist={name}", "--format=%i %u %j").splitlines()


def whose(node: dict[str, Any], ours: str) -> str:
    if node["reason"].startswith(ours) and {"DRAIN", "DOWN"} & set(node["state"]):
        return "ours"
    # slurmctld sets nodes DOWN under its own user, as those that do not answer: that is no word of a person.
    kept = {"DRAIN", "FAIL"} if node["by"] in ("", SLURM_USER) or not node["reason"] else {"DRAIN", "FAIL", "DOWN"}
    return "theirs" if kept & set(node["state"]) else "none"


def update(names: list[str], **settings: str) -> None:
    slurm("scontrol", "update", f"nodename={','.join(names)}", *(f"{key}={value}" for key, value in settings.items()))


def answer(names: list[str], ours: str) -> dict[str, dict[str, Any]]:
    """What is known of each node now."""
    seen = look(names)
    unknown = {"state": [], "reason": "", "by": "", "drain": "none", "jobs": [], "trouble": ""}
    return {
        name: {**seen[name], "drain": whose(seen[name], ours), "jobs": [], "trouble": ""}
        if name in seen
        else {
            **unknown,
            "trouble": f"slurmctld does not know {name}: its slurm.conf is older than the fleet (roll out the"
            " controllers' environment again, with --recheck)",
        }
        for name in names
    }


def undrained(name: str, node: dict[str, Any], patience_s: int) -> str:
    """Why a node that was waited for may not be changed; empty: it may."""
    state = "+".join(node["state"])
    why = ""
    if BUSY & set(node["state"]):
        running = "; ".join(node["jobs"]) or "a job that is ending"
        why = f"still runs {running} after {patience_s} s"
    elif REBOOTING & set(node["state"]):
        why = f"is {state}: Slurm was asked to reboot it, and did not within {patience_s} s (scontrol cancel_reboot)"
    elif node["drain"] == "none":
        why = f"is {state}: somebody resumed it while its batch was waited for, and it may get jobs"
    return f"{name} {why}: nothing was changed on it" if why else ""


def drain(module: AnsibleModule) -> tuple[bool, dict[str, dict[str, Any]]]:
    given = module.params
    before = answer(given["nodes"], given["ours"])
    mine = [name for name, node in before.items() if node["drain"] == "none" and not node["trouble"]]
    if module.check_mode:
        return bool(mine), before
    if mine:
        update(mine, state="drain", reason=given["reason"])
    deadline = time.monotonic() + given["patience_s"]
    while True:
        now = answer(given["nodes"], given["ours"])
        busy = [name for name, node in now.items() if (BUSY | REBOOTING) & set(node["state"])]
        if not busy or time.monotonic() > deadline:
            break
        time.sleep(POLL_S)
    for name in busy:
        now[name]["jobs"] = jobs(name) if BUSY & set(now[name]["state"]) else []
    for name, node in now.items():
        node["trouble"] = node["trouble"] or undrained(name, node, given["patience_s"])
    back = [name for name in busy if name in mine and now[name]["drain"] == "ours"]
    if back:
        # Nothing was changed on them: they go on as they were.
        update(back, state="resume")
        for name in back:
            now[name]["drain"] = "none"
    return bool(mine), now


def unwhole(node: dict[str, Any]) -> set[str]:
    return NOT_WHOLE & set(node["state"])


def give_back(module: AnsibleModule) -> tuple[bool, dict[str, dict[str, Any]]]:
    given = module.params
    ours, deadline = given["ours"], time.monotonic() + given["patience_s"]
    before = answer(given["nodes"], ours)
    mine = [name for name, node in before.items() if node["drain"] == "ours"]
    if module.check_mode:
        return any(before[name]["reason"] != given["reason"] for name in mine), before
    if not mine:
        return False, before
    now = _settled(before, mine, ours, deadline)
    whole = [name for name in mine if not unwhole(now[name]) and now[name]["drain"] == "ours"]
    if whole:
        update(whole, state="resume")
        # Slurm calls a resumed node "not responding" until it has heard of it again.
        now = {**now, **_settled(answer(whole, ours), whole, ours, deadline)}
    for name in mine:
        state = "+".join(now[name]["state"])
        if unwhole(now[name]):
            now[name]["trouble"] = f"{name} is {state} for Slurm: look at slurmd's log on it"
        elif name in whole and {"DRAIN", "DOWN"} & set(now[name]["state"]):
            now[name]["trouble"] = f"{name} was resumed and is {state}: {now[name]['reason']}"
    return any(before[name]["reason"] != given["reason"] for name in whole), now


def _settled(
    now: dict[str, dict[str, Any]], names: list[str], ours: str, deadline: float
) -> dict[str, dict[str, Any]]:  # fmt: skip
    """What is known of nodes once all of these are registered and whole, or the deadline is past."""
    while any(unwhole(now[name]) for name in names) and time.monotonic() < deadline:
        time.sleep(POLL_S)
        now = answer(list(now), ours)
    return now


def main() -> None:
    module = AnsibleModule(
        {
            "nodes": {"type": "list", "elements": "str", "required": True},
            "state": {"type": "str", "choices": ["drained", "returned"], "required": True},
            "reason": {"type": "str", "required": True}, "ours": {"type": "str", "default": "bedplate:"},
            "patience_s": {"type": "int", "default": 600},
        },
        supports_check_mode=True,
    )  # fmt: skip
    given = module.params
    if not given["reason"].startswith(given["ours"]):
        module.fail_json(msg=f"reason {given['reason']!r} does not begin with {given['ours']!r}")
    if re.search(r"[\n\r]", given["reason"]):
        module.fail_json(msg="a reason is one line")
    try:
        changed, nodes = drain(module) if given["state"] == "drained" else give_back(module)
    except (NoAnswer, ValueError, KeyError) as fault:
        module.fail_json(msg=f"Slurm does not answer here: {fault}")
    module.exit_json(changed=changed, nodes=nodes)


if __name__ == "__main__":
    main()
