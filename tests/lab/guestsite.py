"""The guest's archive and site: one suite with two kernels, and an environment for each.

Apart from the lab's: only a test of the kernel pays for the kernels' download.
"""

import shutil
import tempfile
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from lab import debs
from lab.archive import publish
from lab.guest import FIRST_KERNEL, tree_path
from lab.places import GUEST, Places, address, mac
from lab.site import CONTROLLER_MODEL
from lab.steps import Steps
from lab.trees import alone_in, architecture, key_of

EDITION = 1
PORT = 8081
SUITE = "k"


@dataclass(frozen=True)
class Kernels:
    """What is served, its key, and the packages of each kernel: name -> version, the meta package among them."""

    public: Path
    key: str
    old: Mapping[str, str]
    new: Mapping[str, str]


def kernels(places: Places, steps: Steps) -> Kernels:
    """The archive, from the cache where it is there."""
    # Fetched with the guest's tree: what the tree has is never newer than the archive.
    target = places.cache / f"kernels-{key_of(EDITION, tree_path(places).name)}"
    if not target.is_dir():
        with (
            alone_in(places.cache, steps),
            steps.step("guest archive: download two kernels, sign and publish", expected="about 40 s, once"),
        ):
            part = Path(tempfile.mkdtemp(prefix=f"{target.name}.part-", dir=places.cache))
            debs.download_kernels(part / "debs", FIRST_KERNEL)
            files = [deb.path for folder in ("new", "old") for deb in debs.debs(part / "debs" / folder)]
            publish(part, {SUITE: files})
            shutil.rmtree(part / "debs/apt")
            part.rename(target)
    return Kernels(
        public=target / "aptly/public",
        key=(target / "archive.asc").read_text(),
        old=_images(target / "debs/old"),
        new=_images(target / "debs/new"),
    )


def _images(directory: Path) -> dict[str, str]:
    return {deb.name: deb.version for deb in debs.debs(directory) if deb.name.startswith("linux-image-")}


def release(images: Mapping[str, str]) -> str:
    """What `uname -r` says under a kernel: linux-image-6.1.0-50-cloud-amd64 -> 6.1.0-50-cloud-amd64."""
    (name,) = [name for name in images if name != FIRST_KERNEL]
    return name.removeprefix("linux-image-")


def site_files(found: Kernels, host_key: str, controller_key: str) -> dict[str, str]:
    """Every file of the guest's site, by its path in it."""
    arch = architecture()
    nodes = [
        "name,serial,boot_mac,nic_macs,bmc_address,rack,position",
        f"ctl,LAB-0001,{mac('ctl')},,10.78.0.10,r01,40",
        f"{GUEST},LAB-GUEST,{mac(GUEST)},02:bd:00:00:01:e6,10.78.0.230,r01,1",
    ]
    return {
        "fleet.yml": FLEET.format(arch=arch, guest=GUEST, guest_address=address(GUEST), ctl_address=address("ctl")),
        "nodes.csv": "\n".join(nodes) + "\n",
        "models/lab-vm.yml": MODEL,
        "models/lab-controller.yml": CONTROLLER_MODEL,
        "keys/archive.asc": found.key,
        "known_hosts": f"{GUEST},{address(GUEST)} {host_key}\nctl,{address('ctl')} {controller_key}\n",
        "environments/K1.yml": _environment("K1", found.old, "[bedplate.lab=first]"),
        "environments/K2.yml": _environment("K2", found.new, "[bedplate.lab=second, init_on_alloc=0]"),
    }


FLEET = """\
plugin: bedplate
site: guest
example: false
ledger: sqlite:///ledger.sqlite3
ssh: {{user: root, known_hosts: known_hosts, identity_file: /root/.ssh/id_ed25519, port: 22}}
networks:
  management: {{cidr: 10.77.0.0/24, addresses: {{"ctl": {ctl_address}, "{guest}": {guest_address}}}}}
  bmc: {{cidr: 10.78.0.0/24}}
kinds:
  vm: {{model: lab-vm, architecture: {arch}}}
  controller: {{model: lab-controller, architecture: {arch}}}
racks: {{r01: {{positions: 42}}}}
groups:
  controller: {{nodes: "ctl", kind: controller}}
  training: {{nodes: "{guest}", kind: vm, partition: training}}
"""

MODEL = """\
model: lab-vm
vendor: Lab
description: Stand-in for a machine whose kernel can be changed, under emulation
stand_in: true
says_serial: false
gpus: 0
nics: 1
"""


def _environment(name: str, images: Mapping[str, str], command_line: str) -> str:
    packages = ", ".join(f'{package}: "{version}"' for package, version in images.items())
    return f"""\
environment: {name}
description: "Kernel {release(images)}"
kinds: [vm]
archive: {{url: "http://archive.lab:{PORT}/", suite: {SUITE}, components: [main], key: keys/archive.asc}}
layers:
  hardware: {{models: [lab-vm]}}
  firmware: {{unmanaged: "emulated"}}
  os: {{distribution: debian, release: trixie}}
  kernel: {{packages: {{{packages}}}, command_line: {command_line}}}
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
