#!/usr/bin/python
"""Kernel modules loaded now."""

from __future__ import annotations

import os
import subprocess

from ansible.module_utils.basic import AnsibleModule

DOCUMENTATION = r"""
module: bedplate_modules
short_description: Kernel modules loaded
description:
  - A module that is loaded stays as it is, whatever version it has; whether that asks for a reboot is
    bedplate_boot's question.
  - In check mode a module that is not installed yet is a predicted change, not a failure.
options:
  loaded: {description: Modules to load., type: list, elements: str, default: []}
  not_with: {description: Where one of these is loaded nothing is loaded., type: list, elements: str, default: []}
  if_loaded:
    description: >-
      Kernel module to version. Where one of them is loaded in another version nothing is loaded: the kernel would
      refuse it, and the reboot brings both. In check mode none counts as the right one, which converge would have
      loaded.
    type: dict
    default: {}
  needed_by: {description: Who needs them, for messages., type: str, required: true}
author: [Bedplate]
"""

EXAMPLES = r"""
- name: Load what Fabric Manager asks for
  bedplate_modules:
    loaded: [ib_umad]
    needed_by: Fabric Manager
"""

RETURN = r"""
held_back_by:
  description: Those of not_with that are loaded, and those of if_loaded that are not, in that version.
  returned: always
  type: list
"""

SYSFS = "/sys/module"


def directory(name: str) -> str:
    return f"{SYSFS}/{name.replace('-', '_')}"


def is_loaded(name: str, version: str, *, foretelling: bool) -> bool:
    """Whether a kernel module is loaded in a version."""
    try:
        with open(f"{directory(name)}/version") as handle:
            return handle.read().strip() == version
    except OSError:
        return foretelling


def main() -> None:
    names = {"type": "list", "elements": "str", "default": []}
    module = AnsibleModule(
        {
            "loaded": names, "not_with": names, "if_loaded": {"type": "dict", "default": {}},
            "needed_by": {"type": "str", "required": True},
        },
        supports_check_mode=True,
    )  # fmt: skip
    given = module.params
    others = [name for name in given["not_with"] if os.path.isdir(directory(name))]
    others += [
        name
        for name, version in given["if_loaded"].items()
        if not is_loaded(name, version, foretelling=module.check_mode)
    ]
    missing = [] if others else [name for name in given["loaded"] if not os.path.isdir(directory(name))]
    if not module.check_mode:
        faults = []
        for name in missing:
            done = subprocess.run(["modprobe", name], check=False, capture_output=True, text=True)
            if done.returncode or not os.path.isdir(directory(name)):
                faults.append(f"kernel module {name}, which {given['needed_by']} needs, cannot be loaded into "
                              f"{os.uname().release}: {done.stderr.strip() or 'modprobe said nothing'}")  # fmt: skip
        if faults:
            module.fail_json(msg="\n".join(faults))
    module.exit_json(
        changed=bool(missing), held_back_by=others,
        diff={"before": "", "after": "".join(f"modprobe {name}\n" for name in missing)},
    )  # fmt: skip


if __name__ == "__main__":
    main()
