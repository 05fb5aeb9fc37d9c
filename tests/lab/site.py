"""The site of a lab: the texts of fleet.yml, nodes.csv, environments, models and images. Pure."""

from collections.abc import Mapping
from dataclasses import dataclass, field

from bedplate.model.nodes import fold
from lab import recipe, slurmparts
from lab.places import ARCHIVE_PORT, CONTROLLER, SERVICES_HOST, address, mac, node_names

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
    recipe: str  # commit of the recipe that image b stands on
    host: Mapping[str, str] = field(default_factory=dict)  # real packages of the host layers -> version
    slurm: Mapping[str, str] = field(default_factory=dict)  # Slurm's packages and its database's -> version
    cgroup_v1: bool = False  # the machine has the device controller in a hierarchy of its own


@dataclass(frozen=True)
class Generation:
    """What A and B differ in."""

    environment: str
    suite: str
    description: str
    driver: Mapping[str, str]
    fabric: Mapping[str, str]
    container: Mapping[str, str]
    values: Mapping[str, str]
    failed_node: str = "leave"


def driver_packages(suffix: str, version: str, *, dcgm: str, cuda: str) -> dict[str, str]:
    """The explicit list of a driver: metapackages ask for ">="."""
    names = (
        f"nvidia-driver{suffix}-open", f"nvidia-dkms{suffix}-open", f"nvidia-utils{suffix}",
        f"nvidia-compute-utils{suffix}", f"libnvidia-compute{suffix}", "nvidia-persistenced", "nvidia-modprobe",
    )  # fmt: skip
    monitor = {"datacenter-gpu-manager-4-core": dcgm, f"datacenter-gpu-manager-4-{cuda}": dcgm}
    return dict.fromkeys(names, version) | monitor


def fabric_packages(suffix: str, version: str, *, nvlsm: str) -> dict[str, str]:
    names = (f"nvidia-fabricmanager{suffix}", f"libnvidia-nscq{suffix}", f"libnvsdm{suffix}")
    return dict.fromkeys(names, version) | {"nvlsm": nvlsm, "infiniband-diags": "56.1"}


def container_packages(docker: str, containerd: str, *, toolkit: str) -> dict[str, str]:
    toolkit_base, library = "nvidia-container-toolkit-base", "libnvidia-container1"
    four = ("nvidia-container-toolkit", toolkit_base, "libnvidia-container-tools", library)
    return {"docker-ce": docker, "docker-ce-cli": docker, "containerd.io": containerd} | dict.fromkeys(four, toolkit)


SITE_VALUES = {
    "time_servers": SERVICES_HOST, "log_server": SERVICES_HOST, "sysctl": "net.ipv4.tcp_keepalive_time=600",
}  # fmt: skip
A = Generation(
    environment="A", suite="a", description="Driver 570",
    driver=driver_packages("-570", "570.133.20", dcgm="4.4.1", cuda="cuda12"),
    fabric=fabric_packages("-570", "570.133.20", nvlsm="2025.06.11"),
    container=container_packages("28.5.2", "1.7.29", toolkit="1.18.2"),
    values={"nccl_debug": "WARN", "tuning_profile": "baseline", "drain_timeout_s": "120", **SITE_VALUES},
)  # fmt: skip
B = Generation(
    environment="B", suite="b", description="Driver 580: from here on the Fabric Manager has no branch in its name",
    driver=driver_packages("-580", "580.126.20", dcgm="4.6.0", cuda="cuda13"),
    fabric=fabric_packages("", "580.126.20", nvlsm="2025.10.14"),
    container=container_packages("29.1.3", "2.2.0", toolkit="1.20.0"),
    values={"nccl_debug": "INFO", "tuning_profile": "throughput", "drain_timeout_s": "120", **SITE_VALUES},
    failed_node="rollback",
)  # fmt: skip


def site_files(given: Given) -> dict[str, str]:
    """Every file of the site, by its path in it."""
    files = {
        "fleet.yml": fleet(given),
        "nodes.csv": nodes_csv(given),
        "models/lab-gpu8.yml": GPU_MODEL,
        "models/lab-controller.yml": CONTROLLER_MODEL,
        "models/lab-services.yml": SERVICES_MODEL,
        "environments/S.yml": services_environment(given),
        "accounts.yml": ACCOUNTS,
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
says_serial: false
gpus: 8
gpu_product: NVIDIA B200
gpu_type: b200
nics: 2
nvswitch_generation: 4
secure_boot: false
cpu: {sockets: 1, cores_per_socket: 8, threads_per_core: 1}
memory_mib: 4096
"""

SERVICES_MODEL = """\
model: lab-services
vendor: Lab
description: Stand-in for the machine that Slurm's controllers and the accounting database run on
stand_in: true
says_serial: false
gpus: 0
nics: 0
"""

# Who may use the cluster: root is Slurm's own administrator, these are ordinary people.
ACCOUNTS = """\
accounts:
  research: {description: "Everybody who trains", qos: [small, spare], default_qos: small}
  main: {description: "The main run", parent: research, qos: [training, small], default_qos: training, users: [alice]}
  students: {description: "What may be interrupted", parent: research, qos: [spare], default_qos: spare, users: [bob]}
"""

CONTROLLER_MODEL = """\
model: lab-controller
vendor: Lab
description: Stand-in for the machine that the operators work on
stand_in: true
says_serial: false
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
      "{SERVICES_HOST}": {address(SERVICES_HOST)}
      "{CONTROLLER}": {address(CONTROLLER)}
      "{fold(names)}": {address(names[0])}
  bmc: {{cidr: 10.78.0.0/24}}

kinds:
  gpu: {{model: lab-gpu8, architecture: {given.architecture}}}
  controller: {{model: lab-controller, architecture: {given.architecture}}}
  services: {{model: lab-services, architecture: {given.architecture}}}

racks:
{"".join(f"  {rack}: {{positions: 42}}" + chr(10) for rack in racks(given.nodes))}
groups:
  controller: {{nodes: "{CONTROLLER}", kind: controller}}
  training: {{nodes: "{training}", kind: gpu, partition: training}}
  spare: {{nodes: "{spare}", kind: gpu, partition: spare}}
  reference: {{nodes: "{names[0]}"}}
  services: {{nodes: "{SERVICES_HOST}", kind: services}}
"""


def racks(nodes: int) -> list[str]:
    """At least two, so that a rule about rack mates has something to say."""
    return [f"r{number:02d}" for number in range(1, max(2, -(-nodes // NODES_PER_RACK)) + 1)]


def nodes_csv(given: Given) -> str:
    names = node_names(given.nodes)
    places = racks(given.nodes)
    per_rack = -(-given.nodes // len(places))
    lines = ["name,serial,boot_mac,nic_macs,bmc_address,rack,position"]
    beside = {CONTROLLER: 40, SERVICES_HOST: 41}  # machines without GPUs, on top of the first rack
    for number, name in enumerate([CONTROLLER, SERVICES_HOST, *names]):
        last = address(name).rpartition(".")[2]
        nics = [f"02:bd:00:00:{nic:02x}:{int(last):02x}" for nic in (1, 2)] if name not in beside else []
        slot = number - len(beside)
        rack, position = (
            (places[0], beside[name]) if name in beside else (places[slot // per_rack], 1 + 4 * (slot % per_rack))
        )
        lines.append(f"{name},LAB-{number:04d},{mac(name)},{' '.join(nics)},10.78.0.{last},{rack},{position}")
    return "\n".join(lines) + "\n"


def known_hosts(host_keys: Mapping[str, str]) -> str:
    return "".join(f"{host},{address(host)} {key}\n" for host, key in host_keys.items())


def environment(generation: Generation, given: Given) -> str:
    real = {**given.real_packages[generation.suite], **os_packages(given), **mover_packages(given)}

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
  container: {{packages: {mapping(generation.container)}}}
  scheduler: {{controller: S, packages: {mapping(node_scheduler(given))}}}
  image: {{definition: images/{generation.suite}}}
  code: {{unmanaged: "comes with the training program"}}
  config: {{values: {mapping(generation.values)}}}
  launch: {{unmanaged: "comes with the training program"}}

rollout: {{canary: 1, small: 2, batch: 4, failure_budget: 1, failed_node: {generation.failed_node}}}
"""


def mover_packages(given: Given) -> dict[str, str]:
    """What images reach nodes by: without them `image place` takes HTTP and whole files."""
    return {name: given.host[name] for name in ("python3-libtorrent", "xdelta3") if name in given.host}


def os_packages(given: Given) -> dict[str, str]:
    """Time, and logs that go to the services host."""
    return {name: given.host[name] for name in ("chrony", "rsyslog") if name in given.host}


def mapping(values: Mapping[str, str]) -> str:
    return "{" + ", ".join(f'{name}: "{value}"' for name, value in values.items()) + "}"


def node_scheduler(given: Given) -> dict[str, str]:
    """The scheduler's packages of a GPU node."""
    names = [name for name in ("slurmd", "slurm-client", "munge") if name in given.slurm]
    containers = {
        "nvslurm-plugin-pyxis": slurmparts.PYXIS, "enroot": slurmparts.ENROOT, "enroot+caps": slurmparts.ENROOT,
    }  # fmt: skip
    return {name: given.slurm[name] for name in names} | containers


def services_environment(given: Given) -> str:
    """S: the controllers, with an environment of their own. Rolled out before the nodes that they serve."""
    names = ("slurmctld", "slurmdbd", "slurm-client", "munge", "mariadb-server")
    packages = {name: given.slurm[name] for name in names if name in given.slurm}
    packages |= {"nvslurm-plugin-pyxis": slurmparts.PYXIS, "enroot": slurmparts.ENROOT}
    values = {"nccl_debug": "WARN", **SITE_VALUES, "log_receiver": SERVICES_HOST}
    values["slurm_config_overrides"] = "yes"  # eight GPUs and their cores, on paper, on whatever machine this is
    if given.cgroup_v1:  # where each host mounts the machine's hierarchies once more: lab/hosts.py
        values |= {"slurm_cgroup_plugin": "cgroup/v1", "slurm_cgroup_mountpoint": "/cgv1"}
    return f"""\
environment: S
description: "Slurm's controllers and the accounting database"
kinds: [services]

archive:
  url: http://archive.lab:{ARCHIVE_PORT}/
  suite: a
  components: [main]
  key: keys/archive.asc

layers:
  hardware: {{models: [lab-services]}}
  firmware: {{unmanaged: "lab hosts have no firmware"}}
  os: {{distribution: debian, release: trixie, packages: {mapping({**given.real_packages["a"], **os_packages(given)})}}}
  kernel: {{unmanaged: "lab hosts share the machine's kernel"}}
  driver: {{unmanaged: "no GPU in this machine"}}
  fabric: {{unmanaged: "no GPU in this machine"}}
  container: {{unmanaged: "no container runs here"}}
  scheduler: {{packages: {mapping(packages)}}}
  image: {{unmanaged: "no job runs here"}}
  code: {{unmanaged: "no job runs here"}}
  config: {{values: {mapping(values)}}}
  launch: {{unmanaged: "no job runs here"}}

rollout: {{canary: 1, small: 1, batch: 1, failure_budget: 0}}
"""


def image(suite: str, given: Given) -> str:
    return _image(suite, given) + (UPSTREAM.format(commit=given.recipe) if suite == B.suite else "")


# The second image stands on somebody's recipe, as a training image does; its own RUN needs no network.
UPSTREAM = f"""\
network: none
upstream:
  repository: {recipe.ADDRESS}
  tag: {recipe.TAG}
  commit: {{commit}}
  target: main
  arguments: {{{{STEPS: "2000"}}}}
  empty: [assets]
  code: {recipe.CODE}
"""


def _image(suite: str, given: Given) -> str:
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
RUN echo 'VARIANT="Bedplate lab image a"' >> /usr/lib/os-release
CMD ["cat", "/opt/lab/greeting"]
""",
    "b": """\
ARG BASE
FROM ${BASE}
ARG GREETING
COPY --from=upstream . /opt/recipe
COPY --from=built-from built-from.json /opt/recipe/
RUN echo "${GREETING}" > /opt/lab/greeting
RUN echo 'VARIANT="Bedplate lab image b"' >> /usr/lib/os-release
RUN sha256sum /opt/lab/steps > /opt/lab/steps.sha256
CMD ["cat", "/opt/lab/greeting"]
""",
}
