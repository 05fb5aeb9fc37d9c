"""Stand-ins for what a GPU driver and a kernel with cgroup v2 give a host: device files, and hierarchies for Slurm.

Device files of eight GPUs, made at each boot, as a driver makes them; behind them is no driver, so that opening one
answers "No such device or address", or "Operation not permitted" where a cgroup forbids it.

On a machine whose device controller is in a cgroup v1 hierarchy, a host's own cgroup2 has no controllers. There each
host mounts these hierarchies once more at /cgv1, as far as they are its own: its processes lie in a directory of
the host (see machine.py), which its cgroup namespace shows it as the root.
"""

from pathlib import Path

from lab.controller import write
from lab.machine import v1_controllers
from lab.standins import LABEL

GPUS = 8
MAJOR = 195  # NVIDIA's; no driver of that number is loaded on a machine without GPUs
V1 = "/cgv1"


def furnish(root: Path, *, gpus: int) -> None:
    """Write into the root of a host, before it boots."""
    if gpus:
        lines = [f"c /dev/nvidia{number} 0666 root root - {MAJOR}:{number}\n" for number in range(gpus)]
        lines.append(f"c /dev/nvidiactl 0666 root root - {MAJOR}:255\n")
        write(root / "etc/tmpfiles.d/lab-stand-in-gpus.conf", f"# {LABEL} for the devices of GPUs\n" + "".join(lines))
    if controllers := v1_controllers():
        mounts = "".join(
            f"ExecStart=/bin/sh -c 'mkdir -p {V1}/{name}; mount -t cgroup -o {name} cgroup {V1}/{name}'\n"
            for name in controllers
        )
        unit = "lab-stand-in-cgroup-v1.service"
        write(
            root / "etc/systemd/system" / unit,
            f"[Unit]\nDescription={LABEL} for cgroup v2 controllers\nDefaultDependencies=no\nBefore=sysinit.target\n"
            f"After=local-fs.target\n[Service]\nType=oneshot\nRemainAfterExit=yes\n{mounts}"
            "[Install]\nWantedBy=sysinit.target\n",
        )
        wants = root / "etc/systemd/system/sysinit.target.wants"
        wants.mkdir(parents=True, exist_ok=True)
        (wants / unit).symlink_to(f"../{unit}")
