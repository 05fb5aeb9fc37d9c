"""A kernel to load modules into, for hosts that share the machine's: labelled trees over /sys/module and /proc/driver.

Made at each boot by a unit of the host, so that a reboot changes what is loaded, as it does on a machine. The
programs that Debian calls modprobe and modinfo are the stand-in of tests/lab/standin/kernel.
"""

from pathlib import Path

from lab.controller import write
from lab.standins import LABEL, PARTS, module_text

PROGRAM = "usr/local/lib/lab-kernel/kernel"
OWN = {"mlx5_core": "", "mlx5_ib": "mlx5_core", "ib_umad": "", "ib_uverbs": ""}  # what a distribution's kernel has
UNIT = f"""\
[Unit]
Description={LABEL} for the kernel's modules
DefaultDependencies=no
After=local-fs.target
Before=systemd-modules-load.service sysinit.target

[Service]
Type=oneshot
RemainAfterExit=yes
ExecStart=/{PROGRAM} boot

[Install]
WantedBy=sysinit.target
"""
LOADING = f"""\
# {LABEL}: systemd itself would ask the machine's kernel.
[Unit]
After=lab-kernel.service
[Service]
ExecStart=
ExecStart=/{PROGRAM} modules-load
"""


def furnish(root: Path) -> None:
    """Write into the root of a host, before it boots."""
    write(root / PROGRAM, (PARTS / "kernel").read_text(), mode=0o755)
    for name, depends in OWN.items():
        write(root / "usr/local/lib/lab-kernel/modules" / name, module_text(name, "", depends))
    for name in ("modprobe", "modinfo"):
        place = root / "usr/sbin" / name
        place.unlink(missing_ok=True)  # a link to kmod, which is not to be written through
        place.symlink_to(f"/{PROGRAM}")
    write(root / "etc/systemd/system/lab-kernel.service", UNIT)
    wants = root / "etc/systemd/system/sysinit.target.wants"
    wants.mkdir(parents=True, exist_ok=True)
    (wants / "lab-kernel.service").symlink_to("../lab-kernel.service")
    write(root / "etc/systemd/system/systemd-modules-load.service.d/lab.conf", LOADING)
    # chrony is skipped in silence where it may not set the clock, and here it must not: the clock is the machine's.
    write(
        root / "etc/systemd/system/chrony.service.d/lab.conf",
        f"# {LABEL}\n[Unit]\nConditionCapability=\n[Service]\nExecStart=\nExecStart=!/usr/sbin/chronyd -F 1 -x\n",
    )
