#!/usr/bin/python
"""systemd units of a role in one round trip: enabled, running, masked, restarted; and proof that they run."""

from __future__ import annotations

import datetime
import os
import re
import subprocess
import time
from typing import Any

from ansible.module_utils.basic import AnsibleModule

DOCUMENTATION = r"""
module: bedplate_units
short_description: Units enabled, running, masked and restarted in one round trip
description:
  - A unit that systemd skips because of a condition is "started" for systemctl and for ansible.builtin.systemd; here
    it is a failure that names the condition.
  - systemd reads unit files again only if it says that one of the units named here needs it, and never while a
    process uses a GPU or a step of a job runs (NVIDIA/nvidia-container-toolkit#48, a daemon-reload takes GPUs from
    containers whose devices were allowed behind systemd's back).
  - In check mode a unit whose package is not there yet is a predicted change, not a failure.
options:
  running: {description: Enabled and active; no oneshot that does not remain., type: list, elements: str, default: []}
  enabled: {description: Enabled, be they started or not., type: list, elements: str, default: []}
  masked: {description: Masked and stopped; units that do not exist too., type: list, elements: str, default: []}
  reads:
    description: >-
      Unit to the files that it reads when it starts. It is restarted if one of them was put there after it became
      active: also when what wrote the file was killed before it came to this.
    type: dict
    default: {}
  written: {description: Files that were (or would be) written just now., type: list, elements: str, default: []}
  if_loaded:
    description: >-
      Kernel module to version. Units of running are started only where that version is loaded, and only enabled where
      another or none is. In check mode none counts as the right one, which converge would have loaded.
    type: dict
    default: {}
  patience_s: {description: How long a started unit may take to be active., type: int, default: 60}
author: [Bedplate]
"""

EXAMPLES = r"""
- name: Run Fabric Manager
  bedplate_units:
    running: [nvidia-fabricmanager.service]
"""

RETURN = r"""
done: {description: What was done, or would be, a line for each., returned: always, type: list}
"""

PROPERTIES = (
    "Id",
    "LoadState",
    "ActiveState",
    "UnitFileState",
    "NeedDaemonReload",
    "ConditionResult",
    "Result",
    "ActiveEnterTimestamp",
)
PROC = "/proc"
OWN_USERS = ("nvidia-persistenced", "nvidia-persiste", "nv-hostengine", "nv-fabricmanage", "nvlsm", "dcgm-exporter")


def systemctl(*words: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        ["systemctl", "--no-ask-password", *words], check=False, capture_output=True, text=True,
        env={**os.environ, "LC_ALL": "C.UTF-8", "SYSTEMD_COLORS": "0"},
    )  # fmt: skip


def look(names: list[str]) -> dict[str, dict[str, str]]:
    """Unit -> its properties."""
    if not names:
        return {}
    shown = systemctl("show", "--timestamp=us+utc", "--property", ",".join(PROPERTIES), "--", *names).stdout
    blocks = [dict(line.split("=", 1) for line in block.splitlines() if "=" in line) for block in shown.split("\n\n")]
    return dict(zip(names, [block for block in blocks if block], strict=True))


def is_loaded(name: str, version: str, *, foretelling: bool) -> bool:
    """Whether a kernel module is loaded in a version."""
    try:
        with open(f"/sys/module/{name}/version") as handle:
            return handle.read().strip() == version
    except OSError:
        return foretelling


def gpu_users() -> list[str]:
    """Processes that a daemon-reload could harm: those with a GPU open, and steps of jobs."""
    found = []
    for pid in filter(str.isdigit, os.listdir(PROC)):
        try:
            with open(f"{PROC}/{pid}/comm") as handle:
                name = handle.read().strip()
            with open(f"{PROC}/{pid}/cmdline", "rb") as handle:
                words = handle.read().replace(b"\0", b" ").decode(errors="replace").strip()
            if re.match(r"slurmstepd: \[\d+", words):  # not `slurmstepd infinity`, which only keeps a cgroup
                found.append(f"{pid} {words}")
            elif name not in OWN_USERS and any(
                re.fullmatch(r"/dev/nvidia\d+", os.readlink(f"{PROC}/{pid}/fd/{number}"))
                for number in os.listdir(f"{PROC}/{pid}/fd")
            ):
                found.append(f"{pid} {words or name}")
        except OSError:
            continue  # it ended meanwhile
    return found


def is_older(unit: dict[str, str], files: list[str], written: list[str]) -> bool:
    """Whether a unit became active before one of its files was put where it is."""
    text = unit.get("ActiveEnterTimestamp", "")  # Mon 2026-11-30 01:44:33.123456 UTC
    try:
        since = (
            datetime.datetime.strptime(text[4:], "%Y-%m-%d %H:%M:%S.%f UTC").replace(tzinfo=datetime.UTC).timestamp()
        )
    except ValueError:
        return False
    # The change time: a package's files keep the modification time that they had when it was built.
    return any(path in written or (os.path.exists(path) and os.stat(path).st_ctime > since) for path in files)


def plan(given: dict[str, Any], units: dict[str, dict[str, str]]) -> list[tuple[str, str]]:
    """(verb, unit) in the order in which they have to be done."""
    steps = [("mask", name) for name in given["masked"] if units[name].get("LoadState") != "masked"]
    for name in [*given["running"], *given["enabled"]]:
        if units[name].get("LoadState") == "masked":
            steps.append(("unmask", name))
        # static, generated, indirect, alias: there is nothing to enable
        if units[name].get("UnitFileState") in ("disabled", "", None, "masked"):
            steps.append(("enable", name))
    for name in given["running"]:
        if units[name].get("ActiveState") in ("active", "reloading", "activating"):
            if is_older(units[name], given["reads"].get(name, []), given["written"]):
                steps.append(("restart", name))
        else:
            steps.append(("start", name))
    return steps


def main() -> None:
    names = {"type": "list", "elements": "str", "default": []}
    module = AnsibleModule(
        {
            "running": names, "enabled": names, "masked": names, "written": names,
            "reads": {"type": "dict", "default": {}}, "if_loaded": {"type": "dict", "default": {}},
            "patience_s": {"type": "int", "default": 60},
        },
        supports_check_mode=True,
    )  # fmt: skip
    given = module.params
    if not all(is_loaded(*pair, foretelling=module.check_mode) for pair in given["if_loaded"].items()):
        given["enabled"], given["running"] = [*given["enabled"], *given["running"]], []
    wanted = list(dict.fromkeys([*given["running"], *given["enabled"], *given["masked"]]))
    units = look(wanted)
    said = []
    if any(unit.get("NeedDaemonReload") == "yes" for unit in units.values()):
        users = gpu_users()
        if users:
            module.fail_json(
                msg="a unit file changed and systemd has to read it, which can take GPUs from what runs here: "
                f"{'; '.join(users[:5])}: drain the node and end them first"
            )
        said.append("daemon-reload")
        if not module.check_mode:
            systemctl("daemon-reload")
            units = look(wanted)
    steps = plan(given, units)
    said += [f"{verb} {name}" for verb, name in steps]
    result = {"changed": bool(said), "done": said, "diff": {"before": "", "after": "".join(f"{s}\n" for s in said)}}
    if module.check_mode:
        module.exit_json(**result)
    for verb, name in steps:
        # a unit that does not exist can be masked, and has nothing to stop
        done = systemctl(
            verb, *(["--now"] if verb == "mask" and units[name].get("LoadState") == "loaded" else []), name
        )
        if done.returncode:
            module.fail_json(msg=why(verb, name, done.stderr.strip()), **result)
    prove(module, result)
    module.exit_json(**result)


def prove(module: AnsibleModule, result: dict[str, Any]) -> None:
    """What was started is active: also where systemctl was content with less."""
    deadline = time.monotonic() + module.params["patience_s"]
    while True:
        bad = {n: u for n, u in look(module.params["running"]).items() if u.get("ActiveState") != "active"}
        if not bad:
            return
        if time.monotonic() > deadline or not any(u.get("ActiveState") == "activating" for u in bad.values()):
            break
        time.sleep(0.2)
    texts = []
    for name, unit in bad.items():
        if unit.get("ConditionResult") == "no" and unit.get("ActiveState") == "inactive":
            texts.append(f"{name} was skipped by systemd: a condition of its unit file is not met here")
        else:
            texts.append(why("start", name, f"it is {unit.get('ActiveState')} ({unit.get('Result')})"))
    module.fail_json(msg="\n".join(texts), **result)


def why(verb: str, name: str, text: str) -> str:
    journal = subprocess.run(
        ["journalctl", "--no-pager", "-n", "12", "-o", "cat", "-u", name], check=False, capture_output=True, text=True
    ).stdout.strip()
    return f"systemctl {verb} {name}: {text}" + (f"\n  its journal ends with:\n{journal}" if journal else "")


if __name__ == "__main__":
    main()
