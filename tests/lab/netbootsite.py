"""The site of a lab whose machines install themselves; one of them has another disk than was ordered.

m1 boots with Secure Boot (shim, signed GRUB, kernel by TFTP), m2 by iPXE over HTTP, m3 the same without UEFI.
"""

import hashlib
from dataclasses import dataclass
from pathlib import Path

from lab.guest import FIRST_KERNEL
from lab.guestsite import PORT, SUITE, Kernels
from lab.installimage import InstallImage
from lab.places import CONTROLLER, address, mac
from lab.site import CONTROLLER_MODEL
from lab.trees import architecture


@dataclass(frozen=True)
class Machine:
    """A machine: what nodes.csv says of it, and which disks are really in it."""

    name: str
    number: int
    kind: str
    ordered: tuple[str, str]
    there: tuple[str, str]

    @property
    def secure_boot(self) -> bool:
        return self.kind == "secure"

    @property
    def firmware(self) -> str:
        return "bios" if self.kind == "legacy" else "uefi"

    @property
    def serial(self) -> str:
        return f"LAB-{self.name.upper()}"

    @property
    def mac(self) -> str:
        return f"02:bd:00:00:02:0{self.number}"

    @property
    def fabric_mac(self) -> str:
        return f"02:bd:00:00:03:0{self.number}"

    @property
    def address(self) -> str:
        return f"10.77.0.{240 + self.number}"


GOOD = Machine("m1", 1, "secure", ("M1BOOTA", "M1BOOTB"), ("M1BOOTA", "M1BOOTB"))
WRONG_DISK = Machine("m2", 2, "plain", ("M2BOOTA", "M2BOOTB"), ("M2BOOTA", "STRANGER"))
LEGACY = Machine("m3", 3, "legacy", ("M3BOOTA", "M3BOOTB"), ("M3BOOTA", "M3BOOTB"))
MACHINES = (GOOD, WRONG_DISK, LEGACY)


def sha256(path: Path) -> str:
    with path.open("rb") as file:
        return f"sha256:{hashlib.file_digest(file, 'sha256').hexdigest()}"


def site_files(found: Kernels, image: InstallImage, host_key: str) -> dict[str, str]:
    """Every file of the site but the vault, by its path in it."""
    rows = ["name,serial,boot_mac,nic_macs,bmc_address,rack,position,bond_macs,boot_disk_serials"]
    rows.append(f"{CONTROLLER},LAB-0001,{mac(CONTROLLER)},,10.78.0.10,r01,40,,")
    rows += [
        f"{m.name},{m.serial},{m.mac},{m.fabric_mac},10.78.0.{240 + m.number},r01,{m.number},,{' '.join(m.ordered)}"
        for m in MACHINES
    ]
    return {
        "fleet.yml": _fleet(image),
        "nodes.csv": "\n".join(rows) + "\n",
        **{f"models/lab-{m.kind}.yml": _model(m) for m in MACHINES},
        "models/lab-controller.yml": CONTROLLER_MODEL,
        "keys/archive.asc": found.key,
        "known_hosts": f"{CONTROLLER},{address(CONTROLLER)} {host_key}\n",
        "environments/N1.yml": _environment(found),
    }


def vault(authorized: str) -> str:
    """What the vault holds, before it is encrypted: nobody logs in by password."""
    return f"netboot_password_hash: '*'\nnetboot_authorized_keys: ['{authorized}']\n"


def _fleet(image: InstallImage) -> str:
    machines = "".join(f', "{m.name}": {m.address}' for m in MACHINES)
    kinds = "\n".join(f"  {m.kind}: {{model: lab-{m.kind}, architecture: {architecture()}}}" for m in MACHINES)
    return f"""\
plugin: bedplate
site: netboot
example: false
ledger: sqlite:///ledger.sqlite3
ssh: {{user: root, known_hosts: known_hosts, identity_file: /root/.ssh/id_ed25519, port: 22}}
networks:
  management:
    cidr: 10.77.0.0/24
    dns: [{address(CONTROLLER)}]
    addresses: {{"{CONTROLLER}": {address(CONTROLLER)}{machines}}}
  bmc: {{cidr: 10.78.0.0/24}}
netboot:
  server: {address(CONTROLLER)}
  interface: host0
  addressing: static
  live: live-boot
  image: {{name: root.squashfs, sha256: "{sha256(image.root)}"}}
  kernel: {{name: vmlinuz, sha256: "{sha256(image.kernel)}"}}
  initrd: {{name: initrd.img, sha256: "{sha256(image.initrd)}"}}
  command_line: ["console=ttyS0,115200", mitigations=off, audit=0, quiet]
kinds:
{kinds}
  controller: {{model: lab-controller, architecture: {architecture()}}}
racks: {{r01: {{positions: 42}}}}
groups:
  controller: {{nodes: "{CONTROLLER}", kind: controller}}
  training: {{nodes: "{GOOD.name}", kind: secure, partition: training}}
  spare: {{nodes: "{WRONG_DISK.name}", kind: plain, partition: spare}}
  cpu: {{nodes: "{LEGACY.name}", kind: legacy, partition: cpu}}
"""


def _model(machine: Machine) -> str:
    return f"""\
model: lab-{machine.kind}
vendor: Lab
description: Stand-in for a bare machine, under emulation
stand_in: true
gpus: 0
nics: 1
firmware: {machine.firmware}
secure_boot: {str(machine.secure_boot).lower()}
boot_disks: 2
data_disks: 0
"""


def _environment(found: Kernels) -> str:
    packages = ", ".join(f'{name}: "{version}"' for name, version in found.new.items())
    assert FIRST_KERNEL in found.new
    return f"""\
environment: N1
description: What a bare machine becomes
kinds: [secure, plain, legacy]
archive: {{url: "http://10.77.0.1:{PORT}/", suite: {SUITE}, components: [main], key: keys/archive.asc}}
layers:
  hardware: {{models: [lab-secure, lab-plain, lab-legacy]}}
  firmware: {{unmanaged: "emulated"}}
  os: {{distribution: debian, release: trixie}}
  kernel: {{packages: {{{packages}}}}}
  driver: {{unmanaged: "no GPU here"}}
  fabric: {{unmanaged: "no GPU here"}}
  container: {{unmanaged: "not what this machine shows"}}
  scheduler: {{unmanaged: "not what this machine shows"}}
  image: {{unmanaged: "not what this machine shows"}}
  code: {{unmanaged: "not what this machine shows"}}
  config: {{values: {{nccl_debug: WARN}}}}
  launch: {{unmanaged: "not what this machine shows"}}
rollout: {{canary: 1, small: 1, batch: 1, failure_budget: 0}}
"""
