"""What a machine boots from the network in the lab: kernel, initrd and root image, Debian in the place of Ubuntu's.

The root image carries the stand-in of the installer (standin/installer) and is also what that installs from, as
Ubuntu's live image is. Cached under the hash of what it is made of.
"""

import shutil
import tempfile
from dataclasses import dataclass
from pathlib import Path

from bedplate.process import run
from lab.places import Places
from lab.steps import Steps
from lab.trees import SUITE, alone_in, architecture, bootstrap, key_of, mirror

EDITION = 2
STAND_IN = Path(__file__).with_name("standin") / "installer"
PACKAGES = (
    "systemd-sysv", "systemd", "udev", "dbus", "kmod", "openssh-server", "sudo", "python3", "python3-apt",
    "python3-debian",
    "python3-yaml", "iproute2", "iputils-ping", "procps", "ca-certificates", "curl", "zstd", "cloud-init", "netplan.io",
    "initramfs-tools", "live-boot", "live-boot-initramfs-tools", "linux-image-cloud-amd64", "squashfs-tools", "mdadm",
    "fdisk", "dosfstools", "e2fsprogs", "dmidecode", "pciutils", "efibootmgr", "gpgv",
    "grub-efi-amd64", "grub-efi-amd64-signed", "shim-signed", "grub-pc-bin",
    "ipxe",
)  # fmt: skip
QUIET = (
    "apt-daily.timer", "apt-daily-upgrade.timer", "dpkg-db-backup.timer", "e2scrub_all.timer", "e2scrub_reap.service",
    "fstrim.timer", "man-db.timer", "serial-getty@ttyS0.service", "getty@tty1.service", "mdcheck_start.timer",
    "mdcheck_continue.timer", "systemd-pcrlock-make-policy.service",
)  # fmt: skip
UNIT = """\
[Unit]
Description=LAB STAND-IN for Ubuntu's installer
ConditionKernelCommandLine=autoinstall
ConditionKernelCommandLine=boot=live
After=cloud-final.service network-online.target
Wants=network-online.target
[Service]
Type=oneshot
ExecStart=/usr/local/sbin/lab-installer
TimeoutStartSec=infinity
StandardOutput=journal+console
[Install]
WantedBy=cloud-init.target
"""


# What firmware fetches first, under the names that dnsmasq.conf has. Out of the image: installed on the machine that
# runs the lab, shim-signed would touch the way in which that machine boots.
LOADERS = {
    "bootx64.efi": "usr/lib/shim/shimx64.efi.signed",
    "grubx64.efi": "usr/lib/grub/x86_64-efi-signed/grubnetx64.efi.signed",
    "snponly.efi": "usr/lib/ipxe/snponly.efi",
    "undionly.kpxe": "usr/lib/ipxe/undionly.kpxe",
}


@dataclass(frozen=True)
class InstallImage:
    """The files that a machine fetches; loaders: a directory with LOADERS."""

    kernel: Path
    initrd: Path
    root: Path
    loaders: Path


def install_image(places: Places, steps: Steps) -> InstallImage:
    """The image, from the cache where it is there."""
    inputs = (PACKAGES, sorted(LOADERS.items()), QUIET, UNIT, STAND_IN.read_text())
    parts = (EDITION, SUITE, *inputs, architecture(), mirror())
    target = places.cache / f"install-{key_of(*parts)}"
    if not target.is_dir():
        with (
            alone_in(places.cache, steps),
            steps.step("install image: Debian in the place of Ubuntu's installer", expected="about 2 minutes, once"),
        ):
            _build(target)
    return InstallImage(target / "vmlinuz", target / "initrd.img", target / "root.squashfs", target / "loaders")


def _build(target: Path) -> None:
    work = Path(tempfile.mkdtemp(prefix=f"{target.name}.part-", dir=target.parent))
    (work / "lab-installer.service").write_text(UNIT)
    hooks = [
        f'install -m 755 {STAND_IN} "$1"/usr/local/sbin/lab-installer',
        f'install -m 644 {work}/lab-installer.service "$1"/etc/systemd/system/lab-installer.service',
        'systemctl --root="$1" enable --quiet lab-installer.service systemd-networkd.service',
        # The seed comes by the kernel's command line alone: nothing else is looked for.
        'printf "datasource_list: [NoCloud, None]\\n" > "$1"/etc/cloud/cloud.cfg.d/90-lab.cfg',
        # Emulation is slow enough: nothing runs that nobody looks at.
        f'systemctl --root="$1" mask --quiet {" ".join(QUIET)}',
        'rm -rf "$1"/var/lib/apt/lists/* "$1"/var/cache/apt/archives/*.deb',
    ]
    bootstrap(work / "root", PACKAGES, hooks)
    made = work / "made"
    (made / "loaders").mkdir(parents=True)
    for name, path in LOADERS.items():
        shutil.copy(work / "root" / path, made / "loaders" / name)
    kernel = next((work / "root/boot").glob("vmlinuz-*"))
    shutil.copy(kernel, made / "vmlinuz")
    shutil.copy(kernel.with_name(kernel.name.replace("vmlinuz", "initrd.img")), made / "initrd.img")
    run(["mksquashfs", work / "root", made / "root.squashfs", "-noappend", "-quiet", "-no-progress", "-comp", "zstd",
         "-Xcompression-level", "3"], timeout_s=900)  # fmt: skip
    made.rename(target)
    shutil.rmtree(work)
