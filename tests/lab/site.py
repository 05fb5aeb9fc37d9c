"""The site of a lab: the texts of fleet.yml, nodes.csv, environments, models and images. Pure."""

from collections.abc import Mapping
from dataclasses import dataclass

from bedplate.model.nodes import fold
from lab.places import ARCHIVE_PORT, CONTROLLER, address, mac, node_names

FEWEST_NODES = 3  # one to be the canary, two spares
NODES_PER_RACK = 4


@dataclass(frozen=True)
class Given:
    """What a lab knows about itself when it writes its site."""

    nodes: int
    architecture: str
    archive_key: str
    real_packages: Mapping[str, Mapping[str, str]]  # suite -> package -> version
    registry: str  # HOST:PORT
    base_repository: str
    base_digest: str
    host_keys: Mapping[str, str]  # host -> "ssh-ed25519 AAAA..."


@dataclass(frozen=True)
class Generation:
    """What A and B differ in."""

    environment: str
    suite: str
    description: str
    driver: Mapping[str, str]
    fabric: Mapping[str, str]
    values: Mapping[str, str]


A = Generation(
    environment="A", suite="a", description="Driver 570",
    driver={"nvidia-driver-570-open": "570.133.20"}, fabric={"nvidia-fabricmanager-570": "570.133.20"},
    values={"nccl_debug": "WARN", "tuning_profile": "baseline"},
)  # fmt: skip
B = Generation(
    environment="B", suite="b", description="Driver 580: from here on the Fabric Manager has no branch in its name",
    driver={"nvidia-driver-580-open": "580.126.20"}, fabric={"nvidia-fabricmanager": "580.126.20"},
    values={"nccl_debug": "INFO", "tuning_profile": "throughput"},
)  # fmt: skip


def site_files(given: Given) -> dict[str, str]:
    """Every file of the site, by its path in it."""
    files = {
        "fleet.yml": fleet(given),
        "nodes.csv": nodes_csv(given),
        "models/lab-gpu8.yml": GPU_MODEL,
        "models/lab-controller.yml": CONTROLLER_MODEL,
        "keys/archive.asc": given.archive_key,
        "known_hosts": known_hosts(given.host_keys),
    }
    for generation in (A, B):
        suite = generation.suite
        files[f"environments/{generation.environment}.yml"] = environment(generation, given)
        files[f"images/{suite}/image.yml"] = image(suite, given)
        files[f"images/{suite}/Dockerfile"] = DOCKERFILES[suite]
    return files


GPU_MODEL = """\
model: lab-gpu8
vendor: Lab
description: Stand-in for an eight-GPU node
stand_in: true
gpus: 8
gpu_product: NVIDIA B200
nics: 2
"""

CONTROLLER_MODEL = """\
model: lab-controller
vendor: Lab
description: Stand-in for the machine that the operators work on
stand_in: true
gpus: 0
nics: 0
"""


def fleet(given: Given) -> str:
    names = node_names(given.nodes)
    training, spare = fold(names[:-2]), fold(names[-2:])
    return f"""\
plugin: bedplate
site: lab
example: false
ledger: sqlite:///ledger.sqlite3
ssh: {{user: root, known_hosts: known_hosts, identity_file: /root/.ssh/id_ed25519, port: 22}}

networks:
  management:
    cidr: 10.77.0.0/24
    addresses:
      "{CONTROLLER}": {address(CONTROLLER)}
      "{fold(names)}": {address(names[0])}
  bmc: {{cidr: 10.78.0.0/24}}

kinds:
  gpu: {{model: lab-gpu8, architecture: {given.architecture}}}
  controller: {{model: lab-controller, architecture: {given.architecture}}}

racks:
{"".join(f"  {rack}: {{positions: 42}}" + chr(10) for rack in racks(given.nodes))}
groups:
  controller: {{nodes: "{CONTROLLER}", kind: controller}}
  training: {{nodes: "{training}", kind: gpu, partition: training}}
  spare: {{nodes: "{spare}", kind: gpu, partition: spare}}
  reference: {{nodes: "{names[0]}"}}
"""


def racks(nodes: int) -> list[str]:
    """At least two, so that a rule about rack mates has something to say."""
    return [f"r{number:02d}" for number in range(1, max(2, -(-nodes // NODES_PER_RACK)) + 1)]


def nodes_csv(given: Given) -> str:
    names = node_names(given.nodes)
    places = racks(given.nodes)
    per_rack = -(-given.nodes // len(places))
    lines = ["name,serial,boot_mac,nic_macs,bmc_address,rack,position"]
    for number, name in enumerate([CONTROLLER, *names]):
        last = address(name).rpartition(".")[2]
        nics = [f"02:bd:00:00:{nic:02x}:{int(last):02x}" for nic in (1, 2)] if name != CONTROLLER else []
        slot = number - 1
        rack, position = (
            (places[0], 40) if name == CONTROLLER else (places[slot // per_rack], 1 + 4 * (slot % per_rack))
        )
        lines.append(f"{name},LAB-{number:04d},{mac(name)},{' '.join(nics)},10.78.0.{last},{rack},{position}")
    return "\n".join(lines) + "\n"


def known_hosts(host_keys: Mapping[str, str]) -> str:
    return "".join(f"{host},{address(host)} {key}\n" for host, key in host_keys.items())


def environment(generation: Generation, given: Given) -> str:
    real = given.real_packages[generation.suite]

    def mapping(values: Mapping[str, str]) -> str:
        return "{" + ", ".join(f'{name}: "{value}"' for name, value in values.items()) + "}"

    return f"""\
environment: {generation.environment}
description: "{generation.description}"
kinds: [gpu]

archive:
  url: http://archive.lab:{ARCHIVE_PORT}/
  suite: {generation.suite}
  components: [main]
  key: keys/archive.asc

layers:
  hardware: {{models: [lab-gpu8]}}
  firmware: {{unmanaged: "lab hosts have no firmware"}}
  os: {{distribution: debian, release: trixie, packages: {mapping(real)}}}
  kernel: {{unmanaged: "lab hosts share the machine's kernel"}}
  driver: {{packages: {mapping(generation.driver)}}}
  fabric: {{packages: {mapping(generation.fabric)}}}
  container: {{unmanaged: "comes with the host layers"}}
  scheduler: {{unmanaged: "comes with Slurm"}}
  image: {{definition: images/{generation.suite}}}
  code: {{unmanaged: "comes with the training program"}}
  config: {{values: {mapping(generation.values)}}}
  launch: {{unmanaged: "comes with the training program"}}

rollout: {{canary: 1, small: 2, batch: 4, failure_budget: 1}}
"""


def image(suite: str, given: Given) -> str:
    return f"""\
name: lab-{suite}
repository: {given.registry}/lab/{suite}
base: {{reference: "{given.registry}/{given.base_repository}", digest: "{given.base_digest}"}}
arguments: {{GREETING: "hello from environment {suite.upper()}"}}
"""


# A RUN without network; the two images differ in a layer, not only in a name.
DOCKERFILES = {
    "a": """\
ARG BASE
FROM ${BASE}
ARG GREETING
RUN mkdir -p /opt/lab && echo "${GREETING}" > /opt/lab/greeting && seq 1 1000 > /opt/lab/steps
CMD ["cat", "/opt/lab/greeting"]
""",
    "b": """\
ARG BASE
FROM ${BASE}
ARG GREETING
RUN mkdir -p /opt/lab && echo "${GREETING}" > /opt/lab/greeting && seq 1 2000 > /opt/lab/steps
RUN sha256sum /opt/lab/steps > /opt/lab/steps.sha256
CMD ["cat", "/opt/lab/greeting"]
""",
}
