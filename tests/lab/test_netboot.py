"""Bare machines install themselves over the network: from power-on to `verified` in the ledger.

The machines are QEMU's, emulated. Ubuntu's installer is a stand-in (standin/installer) that reads the same seed; boot
server, seeds, boot files, DHCP, ledger and playbooks are the product's own.
"""

import json
import shutil
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from bedplate.process import Finished, run
from lab import guestsite, installimage, lifecycle, machine, netbootsite, powered
from lab.netbootsite import GOOD, LEGACY, MACHINES, WRONG_DISK, Machine
from lab.places import BRIDGE_ADDRESS, Places
from lab.run import on
from lab.steps import Steps

pytestmark = [pytest.mark.lab(minutes=30), pytest.mark.bare]

SITE = "/var/lib/bedplate/netboot-site"
SERVED = "/var/lib/bedplate/netboot"
FIRMWARE = Path("/usr/share/OVMF")
DISK_BYTES = 4 << 30
MARK = b"data that nobody asked to wipe"
SERVER = "lab-netboot.service"
PASSWORD = ("--vault-password-file", f"{SITE}/.vault-password")
SSH = ["ssh", "-o", f"UserKnownHostsFile={SITE}/known_hosts", "-o", "StrictHostKeyChecking=yes", "-o", "BatchMode=yes",
       f"root@{GOOD.address}"]  # fmt: skip
PATIENCE_S = 2400.0  # 7 minutes on two quiet cores


def bedplate(*words: str, check: bool = True) -> Finished:
    return on("ctl", ["bedplate", "--site", SITE, *words], check=check)


@pytest.fixture(scope="module")
def served(lab: Places) -> Iterator[Places]:
    """A boot server on the controller host, two bare machines armed and not yet powered on."""
    programs = ("qemu-system-x86_64", "dnsmasq")
    missing = [name for name in programs if shutil.which(name, path="/usr/sbin:/usr/bin") is None]
    if missing or not (FIRMWARE / "OVMF_CODE_4M.secboot.fd").exists():
        pytest.fail(f"machines that boot from the network need {missing or 'OVMF'} (run: tools/setup)")
    steps = Steps(print)
    kernels = guestsite.kernels(lab, steps)
    image = installimage.install_image(lab, steps)
    root = lab.host("ctl") / "root"
    with steps.step("boot server: site, lock, files"):
        host_key = " ".join((root / "etc/ssh/ssh_host_ed25519_key.pub").read_text().split()[:2])
        public = (lab.live / "ssh/id_ed25519.pub").read_text().strip()
        for name, text in netbootsite.site_files(kernels, image, host_key).items():
            on("ctl", ["install", "-D", "-m", "644", "/dev/stdin", f"{SITE}/{name}"], stdin=text)
        on("ctl", ["install", "-m", "600", "/dev/stdin", f"{SITE}/.vault-password"], stdin="lab\n")
        secret = ["ansible-vault", "encrypt", "--vault-password-file", f"{SITE}/.vault-password"]
        on("ctl", [*secret, "--output", f"{SITE}/vault.yml", "-"], stdin=netbootsite.vault(public))
        machine.start(
            lab, "guest-archive",
            [sys.executable, "-E", str(lifecycle.SERVE), BRIDGE_ADDRESS, str(guestsite.PORT), str(kernels.public)],
            log=lab.logs / "guest-archive.log", namespace=lab.namespace(),
        )  # fmt: skip
        bedplate("check")
        bedplate("lock", "N1")
        served = root / SERVED.lstrip("/")
        for folder in ("files", "tftp/files"):
            (served / folder).mkdir(parents=True, exist_ok=True)
            for path in (image.kernel, image.initrd):
                shutil.copy(path, served / folder)
        shutil.copy(image.root, served / "files")
        shutil.copytree(image.loaders, served / "tftp", dirs_exist_ok=True)
        bedplate("render", "netboot", "N1", "--out", "/var/lib/bedplate/rendered", *PASSWORD)
        rendered = root / "var/lib/bedplate/rendered"
        shutil.copytree(rendered / "tftp", served / "tftp", dirs_exist_ok=True)
        on("ctl", ["systemd-run", "--quiet", "--unit=lab-netboot", "--property=Restart=always",
                   "--property=RestartSec=2", f"--setenv=BEDPLATE_SITE={SITE}",
                   "--setenv=PYTHONPYCACHEPREFIX=/var/cache/bedplate/pycache",
                   "bedplate", "netboot", "serve", "--dir", SERVED])  # fmt: skip
        # dnsmasq itself is the machine's, in the controller's network: its paths lead into the controller's root.
        (root / "var/log/bedplate-dnsmasq").mkdir(exist_ok=True)
        configuration = lab.live / "dnsmasq.conf"
        text = (rendered / "dnsmasq.conf").read_text()
        configuration.write_text(text.replace(f"tftp-root={SERVED}", f"tftp-root={served}") + "user=root\n")
        machine.start(lab, "dnsmasq", ["dnsmasq", "--keep-in-foreground", f"--conf-file={configuration}",
                                       f"--log-facility={root}/var/log/bedplate-dnsmasq/dnsmasq.log"],
                      log=lab.logs / "dnsmasq.log", namespace=lab.namespace("ctl"))  # fmt: skip
        names = f"{GOOD.name},{WRONG_DISK.name}"
        bedplate("netboot", "arm", "N1", "--nodes", names, "--approved-by", "lab", "--yes", *PASSWORD)
    yield lab
    machine.kill(lab, [*(m.name for m in MACHINES), "dnsmasq", "guest-archive"])


def power_on(lab: Places, bare: Machine) -> None:
    """A machine, unless it is on: two NVMe disks that have something on them, the network first in its boot order."""
    if machine.pids(lab, bare.name):
        return
    place = lab.live / "machines" / bare.name
    new = not place.exists()
    place.mkdir(parents=True, exist_ok=True)
    disks = []
    for number, serial in enumerate(bare.there):
        path = place / f"disk{number}.img"
        if new:
            with path.open("wb") as file:
                file.truncate(DISK_BYTES)
                file.seek(1 << 20)
                file.write(MARK)
        disks += ["-drive", f"if=none,id=d{number},format=raw,cache=unsafe,discard=unmap,file={path}"]
        disks += ["-device", f"nvme,drive=d{number},serial={serial},use-intel-id=on,bootindex={number + 2}"]
    tap, fabric = f"tap-{bare.name}", f"fab-{bare.name}"
    # OVMF has a PXE client of its own, and QEMU's ROM breaks shim; SeaBIOS has none.
    rom = "" if bare.firmware == "bios" else ",romfile="
    # The fabric's port has a cable and nobody at its other end.
    run(["ip", "-n", lab.namespace(), "-batch", "-"], stdin=f"tuntap add {tap} mode tap\nlink set {tap} master br0 up\n"
        f"tuntap add {fabric} mode tap\nlink set {fabric} up\n")  # fmt: skip
    machine.start(
        lab, bare.name,
        [*powered.argv(place),
         "qemu-system-x86_64", "-name", f"{lab.name}-{bare.name}", "-machine", "q35", "-accel", "tcg,thread=multi",
         "-cpu", "Nehalem,+rdrand", "-smp", "1", "-m", "2048", "-display", "none", "-serial", "stdio",
         "-monitor", "none", "-smbios", f"type=1,serial={bare.serial},manufacturer=Bedplate lab,product=stand-in",
         *firmware(bare, place), *disks, "-device", "virtio-rng-pci", "-nic", "none",
         "-netdev", f"tap,id=management,ifname={tap},script=no,downscript=no",
         "-device", f"virtio-net-pci,netdev=management,mac={bare.mac},bootindex=1{rom}",
         "-netdev", f"tap,id=fabric,ifname={fabric},script=no,downscript=no",
         "-device", f"virtio-net-pci,netdev=fabric,mac={bare.fabric_mac},romfile="],
        log=lab.logs / f"{bare.name}.log", namespace=lab.namespace(),
    )  # fmt: skip


def firmware(bare: Machine, place: Path) -> list[str]:
    """QEMU's options for it; UEFI's variables are kept beside the disks, SeaBIOS is QEMU's default and has none."""
    if bare.firmware == "bios":
        return []
    secure, keys = (".secboot", ".ms") if bare.secure_boot else ("", "")
    if not (place / "variables.fd").exists():
        shutil.copy(FIRMWARE / f"OVMF_VARS_4M{keys}.fd", place / "variables.fd")
    return [
        *(["-machine", "smm=on", "-global", "driver=cfi.pflash01,property=secure,value=on"] if secure else []),
        "-drive", f"if=pflash,format=raw,readonly=on,file={FIRMWARE}/OVMF_CODE_4M{secure}.fd",
        "-drive", f"if=pflash,format=raw,file={place}/variables.fd",
    ]  # fmt: skip


def power_off(lab: Places, bare: Machine) -> None:
    """The plug pulled: its disks and its firmware's variables stay."""
    machine.kill(lab, [bare.name])
    for name in ("tap", "fab"):
        run(["ip", "-n", lab.namespace(), "link", "del", f"{name}-{bare.name}"], check=False)


def status_of(name: str) -> dict[str, object]:
    return dict(json.loads(bedplate("netboot", "status", "--json").out)[name])


def wait_for(lab: Places, bare: Machine, phases: set[str]) -> str:
    """Wait for a phase of a machine's installation; the end of its console when it does not come."""
    deadline = time.monotonic() + PATIENCE_S
    phase = ""
    while time.monotonic() < deadline:
        phase = str(status_of(bare.name)["phase"])
        if phase in phases:
            return phase
        if phase in {"failed", "held"} or not machine.pids(lab, bare.name):
            break
        time.sleep(5)
    console = (lab.logs / f"{bare.name}.log").read_text(errors="replace")[-3000:]
    raise AssertionError(f"{bare.name} is at {phase!r}, not {phases}; its console:\n{console}")


def marks(lab: Places, bare: Machine) -> list[bytes]:
    """What lay on its disks before."""
    found = []
    for number in range(len(bare.there)):
        with (lab.live / "machines" / bare.name / f"disk{number}.img").open("rb") as file:
            file.seek(1 << 20)
            found.append(file.read(len(MARK)))
    return found


# The steps of one story, in their order: the first machine installs itself while the other one is tried.


def test_a_machine_with_another_disk_than_ordered_stops_before_wiping_and_says_why(served: Places) -> None:
    for bare in (GOOD, WRONG_DISK):  # those that are armed: a BIOS that finds nothing to boot waits for a power cycle
        power_on(served, bare)
    wait_for(served, WRONG_DISK, {"stopped"})
    assert marks(served, WRONG_DISK) == [MARK, MARK], "nothing of it was touched"
    why = str(status_of(WRONG_DISK.name)["why"])
    assert "M2BOOTB" in why, "the disk that is missing"
    assert "STRANGER" in why, "the disk that is there instead"


def test_the_boot_server_may_be_killed_in_the_middle_of_an_installation(served: Places) -> None:
    power_on(served, GOOD)
    wait_for(served, GOOD, {"installing"})
    before = json.loads(bedplate("ledger", "log", "--json").out)
    pid = on("ctl", ["systemctl", "show", "--property=MainPID", "--value", SERVER]).out.strip()
    on("ctl", ["kill", "-9", pid])
    stage = status_of(GOOD.name)
    assert (stage["phase"], bool(stage["token_sha256"])) == ("installing", True), "the ledger alone knows it"
    after = json.loads(bedplate("ledger", "log", "--json").out)
    assert after[: len(before)] == before
    bedplate("ledger", "verify")


def test_an_armed_machine_that_comes_back_before_it_reported_is_held(served: Places) -> None:
    """Its firmware is a BIOS: the other two have UEFI, with and without Secure Boot."""
    power_off(served, WRONG_DISK)
    bedplate("netboot", "arm", "N1", "--nodes", LEGACY.name, "--approved-by", "lab", "--yes", *PASSWORD)
    power_on(served, LEGACY)
    wait_for(served, LEGACY, {"seed fetched", "inventory fits", "installing"})
    power_off(served, LEGACY)
    power_on(served, LEGACY)
    wait_for(served, LEGACY, {"held"})
    power_off(served, LEGACY)
    told = json.loads(bedplate("ledger", "log", "--json").out)
    asked = [e["body"] for e in told if e["kind"] == "netboot.asked" and f"node:{LEGACY.name}" in e["subjects"]]
    assert {body["platform"] for body in asked} == {"pcbios"}
    assert [body["answer"] for body in asked][-1] == "held"


def test_a_machine_installs_itself_and_becomes_verified(served: Places) -> None:
    power_on(served, GOOD)
    wait_for(served, GOOD, {"first boot", "cloud-init finished", "host key confirmed"})
    on("ctl", ["bedplate", "--site", SITE, "netboot", "wait", "--nodes", GOOD.name], timeout_s=2400)
    assert MARK not in marks(served, GOOD)
    said = on("ctl", [*SSH, "uname -r; cat /proc/mdstat; od -An -tu1 -j4 /sys/firmware/efi/efivars/SecureBoot-*"]).out
    assert "raid1" in said
    assert said.split()[-1] == "1", "with Secure Boot"
    argv = ["ansible-playbook", "-i", f"{SITE}/fleet.yml", "playbooks/rollout.yml", "-e", "target=N1"]
    on("ctl", [*argv, "--limit", GOOD.name], environment={"BEDPLATE_SITE": SITE}, timeout_s=2400)
    assert status_of(GOOD.name)["phase"] == "verified"
    assert json.loads(bedplate("status", "--json").out)["nodes"][GOOD.name]["status"] == "verified"
    told = json.loads(bedplate("ledger", "log", "--json").out)
    kinds = {event["kind"] for event in told if f"node:{GOOD.name}" in event["subjects"]}
    steps = ("armed", "fetched", "seeded", "inventory", "stage", "phoned", "finished", "confirmed")
    assert {f"netboot.{step}" for step in steps} <= kinds
    bedplate("ledger", "verify")


def test_a_machine_that_is_not_armed_boots_its_own_disk(served: Places) -> None:
    """The installed one comes back from the network at every boot, and is sent to its disk."""
    before = on("ctl", [*SSH, "cat /proc/sys/kernel/random/boot_id"]).out
    on("ctl", [*SSH, "systemctl --no-block reboot"])
    deadline = time.monotonic() + PATIENCE_S
    after = before
    while after == before and time.monotonic() < deadline:
        time.sleep(5)
        asked = on("ctl", [*SSH[:1], "-o", "ConnectTimeout=5", *SSH[1:], "cat /proc/sys/kernel/random/boot_id"],
                   check=False)  # fmt: skip
        after = asked.out or before
    assert after != before
    assert status_of(GOOD.name)["phase"] == "verified", "nothing was begun anew"


def test_qemu_is_emulation_and_says_so(served: Places) -> None:
    said = subprocess.run(["pgrep", "-af", f"qemu.*{served.name}"], check=False, capture_output=True, text=True).stdout
    assert "-accel tcg" in said
    assert "kvm" not in said
