#!/usr/bin/python
"""A JSON file that is not ours alone: our keys in it, all others as they are."""

from __future__ import annotations

import json
import os
import tempfile
from typing import Any

from ansible.module_utils.basic import AnsibleModule

DOCUMENTATION = r"""
module: bedplate_json
short_description: Merge keys into a JSON file; what others put there survives
description:
  - Objects are merged key by key, anything else is replaced. Keys are sorted, so that a second run changes nothing
    (`nvidia-ctk runtime configure` keeps no order).
  - What was merged is kept beside I(kept); a key that is no longer asked for goes, unless somebody changed it since.
options:
  path: {description: The file., type: path, required: true}
  keys: {description: What it must have; JSON., type: str, required: true}
  kept: {description: Where what was merged last is kept., type: path, required: true}
author: [Bedplate]
"""

EXAMPLES = r"""
- name: Merge daemon.json
  bedplate_json:
    path: /etc/docker/daemon.json
    keys: '{"features": {"cdi": true}}'
    kept: /var/lib/bedplate/docker-daemon.json
"""

RETURN = r"""
# nothing but changed
"""


def merged(there: Any, wanted: Any) -> Any:
    """Wanted over what is there."""
    if not (isinstance(there, dict) and isinstance(wanted, dict)):
        return wanted
    return {**there, **{key: merged(there.get(key), value) for key, value in wanted.items()}}


def without(there: Any, before: Any, wanted: Any) -> Any:
    """What is there, less what we put there before and do not want any more."""
    if not all(isinstance(value, dict) for value in (there, before)):
        return there
    wanted = wanted if isinstance(wanted, dict) else {}
    result = {}
    for key, value in there.items():
        if key not in before or key in wanted:
            result[key] = without(value, before.get(key), wanted.get(key))
        elif isinstance(value, dict) and isinstance(before[key], dict):
            left = without(value, before[key], {})
            if left:
                result[key] = left
        elif value != before[key]:
            result[key] = value
    return result


def read(path: str) -> str:
    try:
        with open(path) as handle:
            return handle.read()
    except FileNotFoundError:
        return ""


def write(path: str, text: str) -> None:
    os.makedirs(os.path.dirname(path), mode=0o755, exist_ok=True)
    handle, temp = tempfile.mkstemp(dir=os.path.dirname(path), prefix=".bedplate-")
    with os.fdopen(handle, "w") as out:
        out.write(text)
        out.flush()
        os.fchmod(out.fileno(), 0o644)
        os.fsync(out.fileno())
    os.rename(temp, path)


def text(value: Any) -> str:
    return json.dumps(value, indent=2, sort_keys=True) + "\n"


def main() -> None:
    module = AnsibleModule(
        {
            "path": {"type": "path", "required": True}, "keys": {"type": "str", "required": True},
            "kept": {"type": "path", "required": True},
        },
        supports_check_mode=True,
    )  # fmt: skip
    path, kept = module.params["path"], module.params["kept"]
    wanted, was, before = json.loads(module.params["keys"]), read(path), read(kept)
    try:
        there = json.loads(was or "{}")
    except ValueError as fault:
        module.fail_json(msg=f"{path} is no JSON: {fault}: correct it, nothing was changed")
    if not isinstance(there, dict):
        module.fail_json(msg=f"{path} holds no object: correct it, nothing was changed")
    now = merged(without(there, json.loads(before or "{}"), wanted), wanted)
    changed = now != there or was == ""  # a file that says the same in another layout is left as it is
    if not module.check_mode:
        if changed:
            write(path, text(now))
        if before != text(wanted):
            write(kept, text(wanted))
    module.exit_json(
        changed=changed,
        diff={"before_header": path, "after_header": path, "before": was, "after": text(now) if changed else was},
    )


if __name__ == "__main__":
    main()
