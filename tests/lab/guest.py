"""The guest: the one lab machine with a kernel of its own, a QEMU machine under TCG.

What a systemd-nspawn host cannot show is shown here: a kernel that is installed, a command line, modules, a reboot
into another kernel. UEFI, a GRUB that reads the grub.cfg which the guest itself writes, one virtio disk, one virtio
network adapter on the lab's bridge. Always TCG: a /dev/kvm that can be opened is no proof that it works.
"""

import shutil
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from bedplate.model.faults import BedplateError
from bedplate.process import run
from lab import hosts, machine, powered
from lab.controller import write
from lab.debs import OLD_SUITE
from lab.places import GUEST, Places, address, mac
from lab.steps import Steps
from lab.trees import MASKED, SUITE, alone_in, architecture, bootstrap, key_of, mirror

EDITION = 3
PROGRAMS = ("qemu-system-x86_64", "mke2fs", "mkfs.vfat", "mmd", "mcopy", "sfdisk")
FIRST_KERNEL = "linux-image-cloud-amd64"  # of OLD_SUITE: the guest comes up with an older kernel than it is given
PACKAGES = (
    "systemd-sysv", "systemd", "udev", "dbus", "openssh-server", "python3", "python3-apt", "python3-debian",
    "iproute2", "procps", "ca-certificates", "kmod", "curl", "zstd", "initramfs-tools", "grub2-common", "grub-common",
    "grub-efi-amd64-signed",
)  # fmt: skip
LABEL = "guestroot"
ESP_MIB, ROOT_MIB = 64, 3072
MEMORY_MIB = 1024
FIRMWARE = Path("/usr/share/OVMF")
# Debian's own, of the same release as the grub.cfg that the guest writes: an older one does not boot from it.
LOADER = "usr/lib/grub/x86_64-efi-signed/grubx64.efi.signed"
BOOT_S = 600.0  # 40 s on two quiet cores
GRUB_DEFAULTS = """\
GRUB_DEFAULT=0
GRUB_TIMEOUT=0
GRUB_TERMINAL=console
GRUB_DISABLE_OS_PROBER=true
GRUB_DISABLE_LINUX_UUID=true
GRUB_CMDLINE_LINUX="root=LABEL=guestroot console=ttyS0 quiet mitigations=off audit=0"
"""
# Until the guest writes its own.
FIRST_GRUB = """\
linux ($root)/boot/{kernel} root=LABEL=guestroot ro console=ttyS0 quiet mitigations=off audit=0
initrd ($root)/boot/{initrd}
boot
"""
NETWORK = """\
[Match]
MACAddress={mac}
[Network]
Address={address}/24
LinkLocalAddressing=no
IPv6AcceptRA=no
"""


@dataclass(frozen=True)
class Disk:
    """Where the guest's disk and its firmware's variables lie."""

    image: Path
    variables: Path


def tree_path(places: Places) -> Path:
    return places.cache / f"guest-{key_of(EDITION, SUITE, OLD_SUITE, PACKAGES, architecture(), mirror())}"


def tree(places: Places, steps: Steps) -> Path:
    """The guest's root as a directory, from the cache where it is there."""
    target = tree_path(places)
    if not target.is_dir():
        with (
            alone_in(places.cache, steps),
            steps.step(f"guest tree: Debian {SUITE} with {OLD_SUITE}'s kernel", expected="about 60 s, once"),
        ):
            _build_tree(target)
    return target


def _build_tree(target: Path) -> None:
    hooks = [
        # It has a kernel of its own for all the rest.
        f'systemctl --root="$1" mask --quiet {" ".join(unit for unit in MASKED if unit.startswith("apt-"))}',
        'systemctl --root="$1" enable --quiet systemd-networkd.service',
        'systemctl --root="$1" mask --quiet serial-getty@ttyS0.service',
        # A small initramfs: made by an emulated processor each time a kernel is installed.
        'mkdir -p "$1"/etc/initramfs-tools/conf.d && echo MODULES=list > "$1"/etc/initramfs-tools/conf.d/lab',
        'printf "%s\\n" virtio_pci virtio_blk virtio_net ext4 > "$1"/etc/initramfs-tools/modules',
        f'chroot "$1" apt-get -qq -y -t {OLD_SUITE} install {FIRST_KERNEL}',
        'rm -rf "$1"/var/lib/apt/lists/* "$1"/var/cache/apt/archives/*.deb',
    ]
    bootstrap(target, PACKAGES, hooks, besides=[OLD_SUITE])


def make(places: Places, lower: Path, authorized: str, names: Sequence[str]) -> tuple[Disk, str]:
    """The disk of this lab's guest, with a host key of its own; its public part."""
    root = hosts.make_root(places, GUEST, [lower])
    public = hosts.furnish(root, GUEST, names, authorized)
    write(root / "etc/systemd/network/10-lab.network", NETWORK.format(mac=mac(GUEST), address=address(GUEST)))
    write(root / "etc/fstab", f"LABEL={LABEL} / ext4 defaults 0 1\n")
    write(root / "etc/default/grub", GRUB_DEFAULTS)
    kernel = next((root / "boot").glob("vmlinuz-*")).name
    write(root / "boot/grub/grub.cfg", FIRST_GRUB.format(kernel=kernel, initrd=kernel.replace("vmlinuz", "initrd.img")))
    disk = _disk(places.host(GUEST), root)
    run(["umount", root])  # its contents are in the image now
    return disk, public


def _disk(place: Path, root: Path) -> Disk:
    image, esp, ext4 = place / "disk.img", place / "esp.img", place / "root.img"
    start = place / "start.cfg"
    start.write_text(f"search --no-floppy --label {LABEL} --set=root\nset prefix=($root)/boot/grub\n"
                     "configfile ($root)/boot/grub/grub.cfg\n")  # fmt: skip
    run(["mkfs.vfat", "-C", esp, str(ESP_MIB * 1024)])
    run(["mmd", "-i", esp, "::EFI", "::EFI/BOOT", "::EFI/debian"])
    run(["mcopy", "-i", esp, root / LOADER, "::EFI/BOOT/BOOTX64.EFI"])
    run(["mcopy", "-i", esp, start, "::EFI/debian/grub.cfg"])  # where Debian's looks
    # verity: the one file system of the lab on which fs-verity can be tried, with the one kernel that has it.
    made: list[str | Path] = ["mke2fs", "-q", "-t", "ext4", "-O", "verity", "-b", "4096", "-L", LABEL, "-d", root]
    run([*made, ext4, f"{ROOT_MIB}M"], timeout_s=600)
    run(["truncate", f"--size={ESP_MIB + ROOT_MIB + 2}M", image])
    table = (
        f"label: gpt\nstart=1MiB, size={ESP_MIB}MiB, type=uefi\n"
        f"start={ESP_MIB + 1}MiB, size={ROOT_MIB}MiB, type=linux\n"
    )
    run(["sfdisk", "--quiet", image], stdin=table)
    for part, at in ((esp, 1), (ext4, ESP_MIB + 1)):
        run(["dd", f"if={part}", f"of={image}", "bs=1M", f"seek={at}", "conv=notrunc,sparse", "status=none"],
            timeout_s=600)  # fmt: skip
        part.unlink()
    variables = place / "variables.fd"
    shutil.copy(FIRMWARE / "OVMF_VARS_4M.fd", variables)
    return Disk(image, variables)


def start(places: Places, disk: Disk) -> None:
    """Power on; a reboot inside is a power cycle, the program ends with a power-off."""
    bridge = places.namespace()
    tap = [f"tuntap add tap-{GUEST} mode tap", f"link set tap-{GUEST} master br0 up"]
    run(["ip", "-n", bridge, "-batch", "-"], stdin="\n".join(tap) + "\n")
    machine.start(
        places, GUEST,
        [*powered.argv(places.host(GUEST)),
         "qemu-system-x86_64", "-name", f"{places.name}-{GUEST}", "-machine", "q35", "-accel", "tcg,thread=multi",
         "-cpu", "Nehalem,+rdrand", "-smp", "2", "-m", str(MEMORY_MIB), "-display", "none", "-serial", "stdio",
         "-monitor", "none", "-smbios", "type=1,serial=LAB-GUEST,manufacturer=Bedplate lab,product=stand-in",
         "-drive", f"if=pflash,format=raw,readonly=on,file={FIRMWARE}/OVMF_CODE_4M.fd",
         "-drive", f"if=pflash,format=raw,file={disk.variables}",
         # unsafe: a disk that a killed lab leaves behind is thrown away
         "-drive", f"if=none,id=disk,format=raw,cache=unsafe,discard=unmap,file={disk.image}",
         "-device", "virtio-blk-pci,drive=disk,serial=LAB-DISK,bootindex=1",
         "-device", "virtio-rng-pci", "-nic", "none",
         "-netdev", f"tap,id=net,ifname=tap-{GUEST},script=no,downscript=no",
         "-device", f"virtio-net-pci,netdev=net,mac={mac(GUEST)},romfile="],
        log=places.logs / f"{GUEST}.log", namespace=bridge,
    )  # fmt: skip


def wait(places: Places, *, patience_s: float = BOOT_S) -> None:
    """Wait until its sshd answers.

    Raises:
        BedplateError: it did not; the console's last lines say how far it came.
    """
    deadline = time.monotonic() + patience_s
    probe = f"exec 3<>/dev/tcp/{address(GUEST)}/22 && head -c 4 <&3"
    while time.monotonic() < deadline:
        asked = run(["ip", "netns", "exec", places.namespace(), "timeout", "5", "bash", "-c", probe], check=False)
        if asked.out == "SSH-":
            return
        if not machine.pids(places, GUEST):
            break
        time.sleep(1)
    raise BedplateError(f"the guest did not come up in {patience_s:.0f} s:\n{console(places)}")


def console(places: Places, lines: int = 15) -> str:
    """The last lines of its serial console, without the escapes that would clear a reader's screen."""
    said = (places.logs / f"{GUEST}.log").read_text(errors="replace")
    return "\n".join(said.replace("\x1b", "").splitlines()[-lines:])
