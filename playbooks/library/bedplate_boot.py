#!/usr/bin/python
"""Whether this node must boot again to run what is installed, and whether that boot could succeed."""

from __future__ import annotations

import glob
import os
import re
import subprocess
from typing import Any

from ansible.module_utils.basic import AnsibleModule

DOCUMENTATION = r"""
module: bedplate_boot
short_description: Why a reboot is needed, if it is; refuses one into a kernel that lacks a module
description:
  - Compares what runs with what is installed; asks nothing of memory, so an interrupted rollout changes no answer.
  - Reasons are another kernel than the lock's, a command line without its words, a loaded module that is not the
    installed one (by srcversion, else by version), an unwanted module that is loaded, and files below I(requests),
    one for each role that asks; they lie under C(/run), so the boot that they ask for takes them away.
  - The kernel that the next boot takes must have every module of I(modules), and those that drive the node's disks
    and networks and carry its mounted file systems now; otherwise the node is refused
    (stackhpc/ansible-slurm-appliance#994, cluster-toolkit#4454, a kernel that came without the driver's modules).
options:
  kernel: {description: Release that the lock has; empty where the kernel is unmanaged., type: str, default: ""}
  command_line: {description: Words that the kernel's command line must have., type: list, elements: str, default: []}
  modules: {description: Modules that the booted kernel must have., type: list, elements: str, default: []}
  versions: {description: Module to the version that the lock has., type: dict, default: {}}
  unwanted: {description: Modules that must not be loaded., type: list, elements: str, default: []}
  requests: {description: Where roles ask., type: path, default: /run/bedplate/reboot}
author: [Bedplate]
"""

EXAMPLES = r"""
- name: Ask whether a reboot is needed
  bedplate_boot:
    kernel: 6.8.0-60-generic
    modules: [nvidia, ib_umad]
"""

RETURN = r"""
needed: {description: Whether to reboot., returned: always, type: bool}
reasons: {description: Why, a line for each., returned: always, type: list}
boot_id: {description: Which boot this is., returned: always, type: str}
"""


# What a type of file system is called in /proc/mounts where its module has another name.
CARRIED_BY = {"nfs4": "nfs", "fuseblk": "fuse"}


def read(path: str) -> str:
    try:
        with open(path) as handle:
            return handle.read().strip()
    except OSError:
        return ""


def modinfo(kernel: str, module: str, field: str) -> str | None:
    """A field of a module as that kernel would load it; None where that kernel has no such module."""
    done = subprocess.run(["modinfo", "-k", kernel, "-F", field, module], check=False, capture_output=True, text=True)
    return done.stdout.strip() if done.returncode == 0 else None


def target(wanted: str, running: str) -> str:
    """The kernel that the next boot takes: the lock's; else the running one."""
    return wanted or running


def is_loaded(module: str) -> bool:
    return os.path.isdir(f"/sys/module/{module.replace('-', '_')}")


def drivers() -> set[str]:
    """Modules that drive this node's disks and networks now: a kernel without them does not come back."""
    devices = ("class/net/*/device", "class/block/*/device", "class/nvme/*/device", "class/scsi_host/*/device")
    links = [link for pattern in devices for link in glob.glob(f"/sys/{pattern}/driver/module")]
    return {os.path.basename(os.path.realpath(link)) for link in links}


def file_systems() -> set[str]:
    """Modules of the file systems that are mounted now: a Lustre client is built for one kernel, as the driver is."""
    types = {line.split()[2].partition(".")[0] for line in read("/proc/mounts").splitlines()}  # fuse.sshfs
    carried = {CARRIED_BY.get(kind, kind) for kind in types}
    return {name for name in carried if read(f"/sys/module/{name}/initstate")}  # what is built in has none


def refusal(given: dict[str, Any], running: str, kernel: str) -> str:
    """Why the kernel of the next boot would not be what this node needs; empty: it is."""
    other = {
        name: there
        for name, version in given["versions"].items()
        if version and (there := modinfo(kernel, name, "version")) not in (None, version)
    }
    if other:
        return "; ".join(
            f"kernel {kernel} has module {name} {there}, the lock says {given['versions'][name]}: it was not built "
            "for this kernel (see dkms status)" for name, there in other.items()
        )  # fmt: skip
    needed = [*given["modules"], *(sorted(drivers() | file_systems()) if kernel != running else [])]
    lacking = [name for name in needed if modinfo(kernel, name, "filename") is None]
    if not lacking:
        return ""
    there = sorted(os.listdir("/lib/modules")) if os.path.isdir("/lib/modules") else []
    return (
        f"kernel {kernel} has no module {', '.join(lacking)}: a boot of it would leave this node without: "
        f"refused (kernels with modules here: {', '.join(there) or 'none'}; see `dkms status` and whether "
        "linux-modules-extra of that kernel is in the lock)"
    )


def reasons(given: dict[str, Any], running: str, kernel: str) -> list[str]:
    found = []
    if kernel != running:
        found.append(f"kernel {running} runs, the lock says {kernel}")
    words = read("/proc/cmdline").split()
    lacking = [word for word in given["command_line"] if word not in words]
    if lacking:
        found.append(f"the kernel runs without {' '.join(lacking)}")
    for name, version in given["versions"].items():
        loaded = read(f"/sys/module/{name.replace('-', '_')}/version")
        if version and loaded not in ("", version):
            found.append(f"module {name} {loaded} is loaded, the lock says {version}")
    for name in sorted(set(given["modules"]) - given["versions"].keys()):
        place = f"/sys/module/{name.replace('-', '_')}"
        for field in ("srcversion", "version"):
            loaded, there = read(f"{place}/{field}"), modinfo(kernel, name, field)
            if loaded and there and kernel == running:
                if loaded != there:
                    found.append(f"module {name} {loaded} is loaded, {there} is installed")
                break
    found += [f"module {name} is loaded" for name in given["unwanted"] if is_loaded(name)]
    if os.path.isdir(given["requests"]):
        found += [
            f"{name}: {read(os.path.join(given['requests'], name)) or 'asks for it'}"
            for name in sorted(os.listdir(given["requests"]))
        ]
    return found


def main() -> None:
    words = {"type": "list", "elements": "str", "default": []}
    module = AnsibleModule(
        {
            "kernel": {"type": "str", "default": ""}, "versions": {"type": "dict", "default": {}},
            "command_line": words, "modules": words, "unwanted": words,
            "requests": {"type": "path", "default": "/run/bedplate/reboot"},
        },
        supports_check_mode=True,
    )  # fmt: skip
    given = module.params
    running = os.uname().release
    kernel = target(given["kernel"], running)
    why = reasons(given, running, kernel)
    result = {"changed": False, "needed": bool(why), "reasons": why, "boot_id": read("/proc/sys/kernel/random/boot_id")}
    # In check mode what would be installed is not there, and nothing boots.
    if not module.check_mode and (refused := refusal(given, running, kernel)):
        module.fail_json(msg=refused, **result)
    result["diff"] = {"before": "", "after": "".join(f"reboot: {re.sub(chr(10), ' ', line)}\n" for line in why)}
    module.exit_json(**result)


if __name__ == "__main__":
    main()
