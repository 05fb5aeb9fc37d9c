"""Kernel, command line and reboot into another kernel, by the same playbook and roles, on a machine that has them."""

import base64
import hashlib
import json
import shutil
import struct
import sys
from collections.abc import Iterator
from dataclasses import dataclass

import pytest

from bedplate.process import Finished, ProcessFailed
from lab import guest, guestsite, lifecycle, machine
from lab.places import BRIDGE_ADDRESS, CHECKOUT, GUEST, Places, places
from lab.run import on
from lab.steps import Steps

pytestmark = pytest.mark.lab(minutes=15)

SITE = "/var/lib/bedplate/guest-site"
REBOOT_S = 600  # an emulated one takes about a minute; a guest that hangs is told before the rollout's own deadline


@dataclass(frozen=True)
class Guest:
    kernels: guestsite.Kernels

    @property
    def old(self) -> str:
        return guestsite.release(self.kernels.old)

    @property
    def new(self) -> str:
        return guestsite.release(self.kernels.new)


@pytest.fixture(scope="module")
def booted(lab: Places) -> Iterator[Guest]:
    """The guest beside the lab's hosts, with an archive and a site of its own; it ends with the lab."""
    missing = [name for name in guest.PROGRAMS if shutil.which(name, path="/usr/sbin:/usr/bin:/sbin:/bin") is None]
    if missing:
        pytest.fail(f"the guest needs {', '.join(missing)} (run: tools/setup)")
    steps = Steps(print)
    found = guestsite.kernels(lab, steps)
    lower = guest.tree(lab, steps)
    public = (lab.live / "ssh/id_ed25519.pub").read_text().strip()
    disk, host_key = guest.make(lab, lower, public, ["ctl", GUEST])
    root = lab.host("ctl") / "root"
    controller_key = (root / "etc/ssh/ssh_host_ed25519_key.pub").read_text()
    for name, text in guestsite.site_files(found, host_key, " ".join(controller_key.split()[:2])).items():
        on("ctl", ["install", "-D", "-m", "644", "/dev/stdin", f"{SITE}/{name}"], stdin=text)
    bedplate("check")  # a fault of the site is told before the minute that a power-on takes
    machine.start(
        lab, "guest-archive",
        [sys.executable, "-E", str(lifecycle.SERVE), BRIDGE_ADDRESS, str(guestsite.PORT), str(found.public)],
        log=lab.logs / "guest-archive.log", namespace=lab.namespace(),
    )  # fmt: skip
    for environment in ("K1", "K2"):
        bedplate("lock", environment)
    with steps.step("guest: power on", expected="about a minute, emulated"):
        guest.start(lab, disk)
        guest.wait(lab)
    yield Guest(found)
    machine.kill(lab, [GUEST, "guest-archive"])


def bedplate(*words: str) -> Finished:
    return on("ctl", ["bedplate", "--site", SITE, *words])


def rollout(environment: str, *words: str) -> Finished:
    argv = ["ansible-playbook", "-i", f"{SITE}/fleet.yml", "playbooks/rollout.yml", "-e", f"target={environment}"]
    argv += ["-e", f"bedplate_reboot_timeout_s={REBOOT_S}", *words]
    try:
        return on("ctl", argv, environment={"BEDPLATE_SITE": SITE}, timeout_s=2 * REBOOT_S)
    except ProcessFailed as failed:
        raise AssertionError(f"{failed}\nconsole of {GUEST}:\n{guest.console(places())}") from failed


def inside(command: str) -> str:
    words = ["ssh", "-o", f"UserKnownHostsFile={SITE}/known_hosts", "-o", "BatchMode=yes", "10.77.0.230", command]
    return on("ctl", words).out.strip()


def events(kind: str) -> list[dict[str, object]]:
    said = bedplate("ledger", "log", "--kind", kind, "--json").out
    return [json.loads(line) for line in said.splitlines() if line.strip()]


def test_a_kernel_is_installed_booted_proven_and_taken_back(booted: Guest) -> None:
    first_boot = inside("cat /proc/sys/kernel/random/boot_id")
    assert inside("uname -r") == booted.old

    rollout("K1")
    assert "bedplate.lab=first" in inside("cat /proc/cmdline").split()
    second_boot = inside("cat /proc/sys/kernel/random/boot_id")
    assert second_boot != first_boot, "another command line holds from a reboot on"

    rollout("K2")
    assert inside("uname -r") == booted.new
    assert {"bedplate.lab=second", "init_on_alloc=0"} <= set(inside("cat /proc/cmdline").split())
    assert "bedplate.lab=first" not in inside("cat /proc/cmdline")
    third_boot = inside("cat /proc/sys/kernel/random/boot_id")
    assert third_boot not in {first_boot, second_boot}
    held = set(inside("apt-mark showhold").split())
    assert booted.kernels.new.keys() <= held, "image and meta package are held"
    assert not inside("apt-get -s -qq dist-upgrade"), "nothing that a person runs brings another kernel"

    again = rollout("K2", "-e", "recheck=true")
    assert "changed=0" in again.out
    assert inside("cat /proc/sys/kernel/random/boot_id") == third_boot, "no reboot without a reason"

    rollout("K1")
    assert inside("uname -r") == booted.old
    assert "bedplate.lab=first" in inside("cat /proc/cmdline").split()
    bedplate("ledger", "verify")


BLOCK = 4096


def fs_verity(data: bytes) -> str:
    """The digest of Documentation/filesystems/fsverity.rst: SHA-256, blocks of 4 KiB, no salt."""

    def level(below: bytes) -> bytes:
        blocks = (below[at : at + BLOCK].ljust(BLOCK, b"\0") for at in range(0, len(below), BLOCK))
        return b"".join(hashlib.sha256(block).digest() for block in blocks)

    tree = level(data)
    while len(tree) > hashlib.sha256().digest_size:
        tree = level(tree)
    descriptor = struct.pack("<BBBBIQ64s32s144x", 1, 1, 12, 0, 0, len(data), tree, b"")
    return hashlib.sha256(descriptor).hexdigest()


def test_fs_verity_holds_an_image_to_what_was_hashed(booted: Guest) -> None:
    """The guest's kernel and file system have fs-verity (guest.py), which few machines that run tests do."""
    data = b"image" * 60_000
    path = f"/root/sha256-{hashlib.sha256(data).hexdigest()}.sqsh"
    program = base64.b64encode((CHECKOUT / "roles/image/templates/image-seal.py.j2").read_bytes()).decode()
    inside(f"echo {program} | base64 --decode > /root/seal; chmod 755 /root/seal")
    inside(f"python3 -c \"open('{path}', 'wb').write(b'image' * 60000)\"; chmod 444 {path}")
    assert inside(f"/root/seal measure {path}") == "-"
    assert inside(f"/root/seal {path}") == f"{path}: sealed now"
    assert inside(f"/root/seal measure {path}") == f"fs-verity:{fs_verity(data)}"
    assert inside(f"cut -d ' ' -f 5 {path}.sealed") == f"fs-verity:{fs_verity(data)}"
    assert "Operation not permitted" in inside(f"chmod 644 {path}; sh -c 'echo x >> {path}' 2>&1 || true")
    assert inside(f"/root/seal {path}") == f"{path}: sealed, as it was"
