"""What a node says, whole and without a drift, for tests that change one thing in it; and a root that says it."""

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

from bedplate.model.facts import Facts, facts
from bedplate.observe.collect import program
from unit.lock_sample import digest

QUESTIONS: dict[str, Any] = {
    "paths": ["/etc/nccl.conf"], "units": ["nvidia-fabricmanager.service"], "images": "/var/lib/bedplate/images",
    "hash_images": False, "deadline_s": 60,
}  # fmt: skip


def sample() -> dict[str, Any]:
    """As tests/unit/lock_sample.py's lock wants it, of a kernel, driver and file of its own."""
    image = f"sha256-{'8' * 64}.sqsh"
    return {
        "schema": 1, "boot_id": "6d2b7a0e-2f7e-4cf3-9d3d-2f3f0f7d1c11", "hostname": "n1", "serial": "LAB-1",
        "os": {"id": "debian", "version_id": "13", "version_codename": "trixie", "pretty_name": "Debian GNU/Linux 13"},
        "kernel": {
            "release": "6.8.0-50-generic", "version": "#51-Ubuntu SMP PREEMPT_DYNAMIC Sat Nov  9 17:58:29 UTC 2024",
            "command_line": "BOOT_IMAGE=/vmlinuz-6.8.0-50-generic root=UUID=1 ro iommu=pt init_on_alloc=0",
        },
        "packages": [
            ["dpkg", "1.22.21", "amd64", "install", "installed"],
            ["libnuma1", "2.0.18-1+b1", "amd64", "hold", "installed"],
            ["nvidia-driver-570-open", "570.133.20-0ubuntu1", "amd64", "hold", "installed"],
            ["nvidia-fabricmanager-570", "570.133.20-1", "amd64", "hold", "installed"],
        ],
        "modules": {"nvidia": "570.133.20", "nvidia_uvm": "570.133.20", "xfs": None},
        "nvidia": {"loaded": {"version": "570.133.20", "open": True}, "libraries": ["570.133.20"], "empty": []},
        "files": {"/etc/nccl.conf": {"sha256": digest("e"), "mode": "0644", "size": 16, "owner": "root:root"}},
        "units": {"nvidia-fabricmanager.service": {
            "load": "loaded", "active": "active", "sub": "running", "file": "enabled", "condition": "yes",
            "reload_needed": False,
        }},
        "images": {"current": image, "files": {image: {"size": 12345, "sha256": None}}},
        "reboot": {"required": False, "by": []},
        "time": {"utc_ms": 1793524443123, "offset_s": 0},
    }  # fmt: skip


def parsed(document: dict[str, Any] | None = None, node: str = "n1") -> Facts:
    return facts(document or sample(), node)


def run_program(questions: dict[str, Any], *, path: str | None = None) -> dict[str, Any]:
    """What the program really prints, run as a node runs it: from stdin, by a Python of its own."""
    done = subprocess.run(
        [sys.executable, "-I", "-"], input=program(questions), capture_output=True, check=False,
        env={"PATH": path or "/usr/sbin:/usr/bin:/sbin:/bin"},
    )  # fmt: skip
    assert done.returncode == 0, done.stderr.decode()
    assert not done.stderr
    document: dict[str, Any] = json.loads(done.stdout)
    return document


STATUS = """\
Package: dpkg
Status: install ok installed
Architecture: amd64
Version: 1.22.21

Package: libnuma1
Status: hold ok installed
Architecture: amd64
Version: 2.0.18-1+b1

Package: nvidia-driver-570-open
Status: hold ok half-configured
Architecture: amd64
Version: 570.133.20-0ubuntu1

Package: nvidia-utils-550
Status: deinstall ok config-files
Architecture: amd64
Version: 550.54.15-0ubuntu1

Package: broken
Status: install reinstreq half-installed
Architecture: all
Version: 1:2.0~rc1-1

"""
FILES = {
    "proc/sys/kernel/random/boot_id": "6d2b7a0e-2f7e-4cf3-9d3d-2f3f0f7d1c11\n",
    "proc/sys/kernel/hostname": "n1\n",
    "proc/sys/kernel/osrelease": "6.8.0-50-generic\n",
    "proc/sys/kernel/version": "#51-Ubuntu SMP PREEMPT_DYNAMIC Sat Nov  9 17:58:29 UTC 2024\n",
    "proc/cmdline": "BOOT_IMAGE=/vmlinuz root=UUID=1 ro iommu=pt\n",
    "proc/modules": "nvidia_uvm 1540096 0 - Live 0x0000000000000000 (O)\nxfs 2158592 2 - Live 0x0000000000000000\n",
    "sys/module/nvidia_uvm/version": "570.133.20\n",
    "sys/module/nvidia/version": "570.133.20\n",
    "sys/module/xfs/refcnt": "2\n",
    "sys/class/dmi/id/product_serial": "LAB-1\n",
    # NVIDIA/open-gpu-kernel-modules, kernel-open/common/inc and nv-procfs.c: what /proc/driver/nvidia/version says
    "proc/driver/nvidia/version": "NVRM version: NVIDIA UNIX Open Kernel Module for x86_64  570.133.20  Release Build"
    "  (dvs-builder@U22-I3-AE18-23-3)  Sun Mar 23 02:58:05 UTC 2025\nGCC version:  gcc version 13.3.0\n",
    "usr/lib/x86_64-linux-gnu/libnvidia-ml.so.570.133.20": "\x7fELF",
    "etc/os-release": 'PRETTY_NAME="Debian GNU/Linux 13"\nVERSION_ID="13"\nVERSION_CODENAME=trixie\nID=debian\n',
    "etc/nccl.conf": "NCCL_DEBUG=WARN\n",
    "var/lib/dpkg/status": STATUS,
    f"var/lib/bedplate/images/sha256-{'8' * 64}.sqsh": "hsqs",
}


def write_root(root: Path) -> Path:
    """A root that the program can be pointed at: what the kernel, dpkg and a person would have there."""
    for name, text in FILES.items():
        path = root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    (root / "var/lib/dpkg/info").mkdir()
    (root / "var/lib/dpkg/updates").mkdir()
    (root / "var/lib/bedplate/images/current.sqsh").symlink_to(f"sha256-{'8' * 64}.sqsh")
    return root


# systemctl show --property=… -- nvidia-fabricmanager.service slurmd.service no-such.service (systemd 257)
SYSTEMCTL = """\
LoadState=loaded
ActiveState=active
SubState=running
UnitFileState=enabled
NeedDaemonReload=no
ConditionResult=yes
ConditionTimestampMonotonic=8312071

LoadState=loaded
ActiveState=inactive
SubState=dead
UnitFileState=enabled
NeedDaemonReload=no
ConditionResult=no
ConditionTimestampMonotonic=9001204

LoadState=not-found
ActiveState=inactive
SubState=dead
UnitFileState=
NeedDaemonReload=no
ConditionResult=no
ConditionTimestampMonotonic=0
"""
UNITS = ["nvidia-fabricmanager.service", "slurmd.service", "no-such.service"]


def write_systemctl(folder: Path, script: str | None = None) -> str:
    """A PATH on which `systemctl` says what SYSTEMCTL has: the machine that runs tests may have no systemd."""
    folder.mkdir(exist_ok=True)
    program = folder / "systemctl"
    program.write_text(script or f"#!/bin/sh\ncat <<'END'\n{SYSTEMCTL}END\n")
    program.chmod(0o755)
    return f"{folder}:/usr/sbin:/usr/bin:/sbin:/bin"
