"""A small site without a fault, for tests that change one thing in it."""

from pathlib import Path

from unit.lock_sample import digest

FLEET = """\
plugin: bedplate
site: sample
ledger: sqlite:///ledger.sqlite3
ssh: {user: root, known_hosts: known_hosts, identity_file: /root/.ssh/id_ed25519, port: 22}
networks:
  management:
    cidr: 10.77.0.0/24
    addresses:
      "ctl": 10.77.0.10
      "n[1-8]": 10.77.0.11
  bmc: {cidr: 10.78.0.0/24}
kinds:
  gpu: {model: lab-gpu8, architecture: amd64}
  controller: {model: lab-controller, architecture: amd64}
racks:
  "r[01-02]": {positions: 42}
groups:
  reference: {nodes: n1}
  training: {nodes: "n[1-6]", kind: gpu, partition: training}
  spare: {nodes: "n[7-8]", kind: gpu, partition: spare}
  controller: {nodes: ctl, kind: controller}
"""

NODES = """\
name,serial,boot_mac,nic_macs,bmc_address,rack,position
ctl,LAB-0,02:00:00:00:00:00,,10.78.0.10,r01,41
n1,LAB-1,02:00:00:00:01:00,02:00:00:00:01:01 02:00:00:00:01:02,10.78.0.11,r01,1
n2,LAB-2,02:00:00:00:02:00,02:00:00:00:02:01 02:00:00:00:02:02,10.78.0.12,r01,2
n3,LAB-3,02:00:00:00:03:00,02:00:00:00:03:01 02:00:00:00:03:02,10.78.0.13,r01,3
n4,LAB-4,02:00:00:00:04:00,02:00:00:00:04:01 02:00:00:00:04:02,10.78.0.14,r01,4
n5,LAB-5,02:00:00:00:05:00,02:00:00:00:05:01 02:00:00:00:05:02,10.78.0.15,r02,1
n6,LAB-6,02:00:00:00:06:00,02:00:00:00:06:01 02:00:00:00:06:02,10.78.0.16,r02,2
n7,LAB-7,02:00:00:00:07:00,02:00:00:00:07:01 02:00:00:00:07:02,10.78.0.17,r02,3
n8,LAB-8,02:00:00:00:08:00,02:00:00:00:08:01 02:00:00:00:08:02,10.78.0.18,r02,4
"""

ENVIRONMENT = """\
environment: A
description: Driver 570
kinds: [gpu]
archive:
  url: http://archive.lab:8080/
  suite: a
  components: [main]
  key: keys/archive.asc
layers:
  hardware: {models: [lab-gpu8]}
  firmware: {unmanaged: lab hosts have no firmware}
  os:
    distribution: debian
    release: trixie
    packages: {numactl: "2.0.18-1+b1"}
  kernel: {unmanaged: hosts share the machine's kernel}
  driver:
    packages: {nvidia-driver-570-open: "570.133.20"}
  fabric:
    packages: {nvidia-fabricmanager-570: "570.133.20"}
  container: {unmanaged: none here}
  scheduler: {unmanaged: none here}
  image: {definition: images/a}
  code: {unmanaged: none here}
  config:
    values: {nccl_debug: WARN}
  launch: {unmanaged: none here}
rollout: {canary: 1, small: 2, batch: 4, failure_budget: 1}
"""

GPU_MODEL = """\
model: lab-gpu8
vendor: Lab
description: Stand-in for a node with eight GPUs
stand_in: true
gpus: 8
gpu_product: NVIDIA B200
nics: 2
says_serial: false
"""

CONTROLLER_MODEL = """\
model: lab-controller
vendor: Lab
gpus: 0
nics: 0
"""

IMAGE = f"""\
name: lab-small
repository: registry.lab:5443/lab/small
base:
  reference: registry.lab:5443/base/debian
  digest: {digest("7")}
arguments: {{GREETING: hello}}
"""


def write_site(root: Path) -> Path:
    """The site on disk, without locks."""
    files = {
        "fleet.yml": FLEET,
        "nodes.csv": NODES,
        "models/lab-gpu8.yml": GPU_MODEL,
        "models/lab-controller.yml": CONTROLLER_MODEL,
        "environments/A.yml": ENVIRONMENT,
        "images/a/image.yml": IMAGE,
        "images/a/Dockerfile": "ARG BASE\nFROM ${BASE}\n",
        "keys/archive.asc": "a key\n",
    }
    for name, text in files.items():
        path = root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    return root


def replace_in(path: Path, old: str, new: str) -> None:
    """Change one thing in a file; what is not there cannot be changed."""
    text = path.read_text()
    assert old in text, f"{path} has no {old!r}"
    path.write_text(text.replace(old, new, 1))
