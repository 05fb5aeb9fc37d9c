"""The cross-layer rules: what each refuses, in which words, and that the examples pass them all."""

# ruff: noqa: E501  messages stand as they are printed

from collections.abc import Mapping
from dataclasses import dataclass, field

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bedplate.decide.packages import kernel, nvidia, prebuilt, slurm
from bedplate.decide.rule import UNUSED, Finding, Weight
from bedplate.decide.rules import all_rules
from bedplate.decide.rules.enroot_uri import minimum
from bedplate.decide.rules.slurm_skew import accepts
from bedplate.decide.subject import Served
from bedplate.model.layers import Layer
from unit.rule_cases import EXAMPLES, environment, environment_text, found, model, of_weight, placed, refused, subject

# --- the table of rules ---------------------------------------------------------------------------


def test_a_rule_is_a_file_and_each_has_an_id_of_its_own_a_title_layers_and_a_source() -> None:
    rules = all_rules()
    assert len({rule.id for rule in rules}) == len(rules) >= 25
    for rule in rules:
        assert rule.id == rule.id.upper()
        assert rule.title
        assert rule.source
        assert rule.layers
        assert rule.asked or rule.installed


def test_every_rule_has_a_case_that_it_refuses() -> None:
    with_cases = {case.rule for case in CASES}
    machine_alone = {rule.id for rule in all_rules() if not rule.asked}  # tests/unit/test_rules_machine.py
    assert {rule.id for rule in all_rules()} - with_cases == machine_alone


# --- the examples ---------------------------------------------------------------------------------


@pytest.mark.parametrize("name", EXAMPLES)
def test_the_examples_with_real_package_names_pass_every_rule(name: str) -> None:
    assert refused(found(subject(environment(name)))) == []


@pytest.mark.parametrize(
    ("name", "driver"), [("2026.11-a", "nvidia-dkms-580-open 580.178.04"), ("2026.11-b", "nvidia-dkms-open 595.91.07")]
)
def test_the_driver_of_the_examples_runs_cuda_13_3_in_compatibility_mode_and_the_sources_are_named(
    name: str, driver: str
) -> None:
    (verdict,) = [f for f in found(subject(environment(name))) if f.rule == "CUDA-DRIVER"]
    assert verdict.weight is Weight.NOTE
    assert verdict.found == (
        f"driver {driver} runs image CUDA 13.3.0 (from config.values.image_cuda) in compatibility mode: 13.x needs 580 or later"
        " (CUDA Compatibility, minor version compatibility, table 1); native from 610.43.02 on"
        " (CUDA Toolkit 13.3 release notes, corresponding driver versions)"
    )


def test_a_driver_of_610_43_02_is_native_for_cuda_13_3() -> None:
    (verdict,) = [
        f for f in found(subject(environment("2026.11-b", {"595.91.07": "610.57.04"}))) if f.rule == "CUDA-DRIVER"
    ]
    assert verdict.found == (
        "driver nvidia-dkms-open 610.57.04 is native for image CUDA 13.3.0 (from config.values.image_cuda), which came with 610.43.02"
        " (CUDA Toolkit 13.3 release notes, corresponding driver versions)"
    )


def test_a_managed_image_of_unknown_cuda_is_unknown_and_no_pass() -> None:
    image = "    unmanaged: the training image has no definition in images/ yet"
    asked = environment(
        changes={'      image_cuda: "13.3.0"': '      other: "13.3.0"', image: "    definition: images/train"}
    )
    said = [f for f in found(subject(asked)) if f.rule == "CUDA-DRIVER"]
    assert [f.weight for f in said] == [Weight.UNKNOWN]
    assert 'nobody says which CUDA the image holds (write it to config.values: image_cuda: "13.3.0")' in str(said[0])


ONE_WRONG: list[tuple[str, str, str, str]] = [
    # example, what stands there, one wrong version of one layer, the only rule that refuses it
    ("2026.11-a", "    release: noble", "    release: jammy", "HARDWARE-SUPPORT"),
    ("2026.11-a", 'linux-modules-extra-6.8.0-138-generic: "6.8.0-138.138"', 'linux-modules-extra-6.8.0-138-generic: "6.8.0-138.139"', "KERNEL-SET"),
    ("2026.11-a", 'linux-image-generic: "6.8.0-138.138"', 'linux-image-generic: "6.8.0-142.142"', "KERNEL-SET"),
    ("2026.11-a", 'nvidia-utils-580: "580.178.04"', 'nvidia-utils-580: "580.159.04"', "NVIDIA-DRIVER-SET"),
    ("2026.11-a", 'datacenter-gpu-manager-4-core: "1:4.6.0-1"', 'datacenter-gpu-manager-4-core: "1:4.5.0-1"', "DCGM-CUDA"),
    ("2026.11-a", 'nvidia-fabricmanager: "580.178.04"', 'nvidia-fabricmanager: "580.159.04"', "NVIDIA-FM-EXACT"),
    ("2026.11-a", 'nvlsm: "2025.10.14-1"', 'nvlsm: "2025.06.1-1"', "NVIDIA-NVLSM"),
    ("2026.11-a", 'libnvidia-container1: "1.20.0-1"', 'libnvidia-container1: "1.19.1-1"', "TOOLKIT-SET"),
    ("2026.11-a", 'docker-ce: "29.7.2"', 'docker-ce: "25.0.5"', "DOCKER-CDI"),
    ("2026.11-a", 'slurm-smd-client: "26.05.3-1"', 'slurm-smd-client: "25.11.7-1"', "SLURM-SET"),
    ("2026.11-a", 'enroot+caps: "4.1.2-1"', 'enroot+caps: "4.1.1-1"', "ENROOT-SET"),
    ("2026.11-a", 'squashfs-tools: "4.6.1"', 'squashfs-tools: "4.7.2"', "SQUASHFS-TOOLS"),
    ("2026.11-a", 'image_cuda: "13.3.0"', 'image_cuda: "12.9.1"', "DCGM-CUDA"),
    ("2026.11-b", 'libnvidia-compute: "595.91.07"', 'libnvidia-compute: "595.71.05"', "NVIDIA-DRIVER-SET"),
    ("2026.11-b", 'nvidia-fabricmanager: "595.91.07"', 'nvidia-fabricmanager: "595.71.05"', "NVIDIA-FM-EXACT"),
    ("2026.11-b", 'linux-headers-6.8.0-138-generic: "6.8.0-138.138"', 'linux-headers-6.8.0-138-generic: "6.8.0-138.137"', "KERNEL-SET"),
    ("2026.11-b", 'containerd.io: "2.3.5"', 'containerd.io: "1.7.12"', "DOCKER-CDI"),
    ("2026.11-controller", 'slurm-smd-slurmdbd: "26.05.3-1"', 'slurm-smd-slurmdbd: "25.11.7-1"', "SLURM-SET"),
]  # fmt: skip


@pytest.mark.parametrize(
    ("name", "old", "new", "rule"), ONE_WRONG, ids=[f"{name} {new}" for name, _, new, _ in ONE_WRONG]
)
def test_one_wrong_version_in_any_layer_is_refused_by_exactly_its_rule(
    name: str, old: str, new: str, rule: str
) -> None:
    findings = found(subject(environment(name, {old: new})))
    assert {finding.rule for finding in findings if finding.refuses} == {rule}


# --- what each rule refuses, in its words ---------------------------------------------------------


@dataclass(frozen=True)
class Case:
    """One thing wrong: which rule, why it is a case, what is changed, and every message.

    A message begins with the key of the line where it stands, or "brought along": lines of the example move.
    """

    rule: str
    why: str
    expected: list[str]
    changes: Mapping[str, str] = field(default_factory=dict)
    model: Mapping[str, str] = field(default_factory=dict)
    closure: Mapping[str, tuple[str, Layer]] = field(default_factory=dict)
    facts: Mapping[str, str] = field(default_factory=dict)
    previous: Mapping[str, Mapping[str, str]] = field(default_factory=dict)
    served: tuple[Served, ...] = ()
    controller: Mapping[str, str] = field(default_factory=dict)
    example: str = "2026.11-a"


ADAPTERS = "=mlx5_4,mlx5_7,mlx5_8,mlx5_9,mlx5_10,mlx5_13,mlx5_14,mlx5_15"
# Ubuntu's own driver, which SECURE-BOOT-DKMS sends to: -server in the driver's names, a branch in those of the fabric.
UBUNTU = {
    "nvidia-driver-580-open": "nvidia-driver-580-server-open",
    "nvidia-dkms-580-open": "nvidia-dkms-580-server-open",
    "nvidia-utils-580": "nvidia-utils-580-server",
    "nvidia-compute-utils-580": "nvidia-compute-utils-580-server",
    "libnvidia-compute-580": "libnvidia-compute-580-server",
    '      libnvsdm: "580.178.04"\n': "",
    "libnvidia-nscq:": "libnvidia-nscq-580:",
}

CASES: list[Case] = [
    # `install nvidia-open-580=… nvidia-fabricmanager` left leaf libraries and Fabric Manager newer
    Case("NVIDIA-FM-EXACT", "apt brought the newest Fabric Manager along with an exact driver (gpu-driver-container#735)", [
        "brought along: NVIDIA-FM-EXACT: fabric nvidia-fabricmanager 590.48.01-1, brought along as a dependency, is not of the version of driver nvidia-dkms-580-open 580.178.04; Fabric Manager refuses any other driver (ask for nvidia-fabricmanager at 580.178.04, by name: as a dependency the newest one comes)",
    ], closure={"nvidia-fabricmanager": ("590.48.01-1", Layer.FABRIC)}),
    Case("NVIDIA-FM-EXACT", "cuda-toolkit-13-0 pulled Fabric Manager 610 onto a 595 host", [
        "brought along: NVIDIA-FM-EXACT: fabric nvidia-fabricmanager 610.57.04-1ubuntu1, brought along as a dependency, is not of the version of driver nvidia-dkms-open 595.91.07; Fabric Manager refuses any other driver (ask for nvidia-fabricmanager at 595.91.07, by name: as a dependency the newest one comes)",
    ], closure={"nvidia-fabricmanager": ("610.57.04-1ubuntu1", Layer.FABRIC)}, example="2026.11-b"),
    Case("NVIDIA-FM-EXACT", "libnvsdm moves with the driver, too", [
        "libnvsdm: NVIDIA-FM-EXACT: fabric libnvsdm 580.159.04 is not of the version of driver nvidia-dkms-580-open 580.178.04; Fabric Manager refuses any other driver (ask for libnvsdm at 580.178.04, by name: as a dependency the newest one comes)",
    ], {'libnvsdm: "580.178.04"': 'libnvsdm: "580.159.04"'}),
    # cuda-drivers-535=535.183.01 resolves to nvidia-driver-535 535.247.01 (dstack#2348)
    Case("NVIDIA-DRIVER-SET", "a metapackage at one version brings the driver at another", [
        "brought along: NVIDIA-DRIVER-SET: driver libnvidia-gl-580 580.159.04-1ubuntu1, brought along as a dependency, is not of the version of driver nvidia-dkms-580-open 580.178.04 (ask for libnvidia-gl-580 at 580.178.04, or for the whole set at 580.159.04-1ubuntu1; name each package, a metapackage depends with >=)",
    ], closure={"libnvidia-gl-580": ("580.159.04-1ubuntu1", Layer.DRIVER)}),
    # nvlink5 brings a driver without nvidia-utils
    Case("NVIDIA-COMPLETE", "leaf packages without nvidia-smi", [
        "nvidia-dkms-580-open: NVIDIA-COMPLETE: hardware hgx-b200 has 8 GPUs, driver has no nvidia-utils-580: nvidia-smi is in it (ask for nvidia-utils-580 at 580.178.04)",
    ], {'      nvidia-driver-580-open: "580.178.04"\n': "", '      nvidia-utils-580: "580.178.04"\n': ""}),
    Case("NVIDIA-COMPLETE", "leaf packages without a kernel module, from 590 on", [
        "libnvidia-compute: NVIDIA-COMPLETE: hardware hgx-b200 has 8 GPUs, driver libnvidia-compute 595.91.07 comes without its kernel module (ask for nvidia-dkms-open at 595.91.07)",
    ], {'      nvidia-driver-open: "595.91.07"\n': "", '      nvidia-dkms-open: "595.91.07"\n': ""}, example="2026.11-b"),
    # nvidia-fabricmanager-580=580.126.09-1: version not found (gpu-driver-container#451)
    Case("NVIDIA-NAMES", "the suffixed name of Fabric Manager is virtual from 580 on", [
        "nvidia-fabricmanager-580: NVIDIA-NAMES: fabric nvidia-fabricmanager-580 580.178.04: this name is a virtual package of NVIDIA's repository, of which there is no version (ask for nvidia-fabricmanager, which is its name in branch 580)",
    ], {"nvidia-fabricmanager:": "nvidia-fabricmanager-580:"}),
    Case("NVIDIA-NAMES", "from 590 on the driver's packages have no branch in their name", [
        "nvidia-driver-595-open: NVIDIA-NAMES: driver nvidia-driver-595-open 595.91.07: this name is a virtual package of NVIDIA's repository, of which there is no version (ask for nvidia-driver-open, which is its name in branch 595)",
    ], {"nvidia-driver-open:": "nvidia-driver-595-open:"}, example="2026.11-b"),
    Case("NVIDIA-NAMES", "before 590 they have one", [
        "nvidia-driver-open: NVIDIA-NAMES: driver nvidia-driver-open 580.178.04: this name does not exist in that branch (ask for nvidia-driver-580-open, which is its name in branch 580)",
    ], {"nvidia-driver-580-open:": "nvidia-driver-open:"}),
    Case("NVIDIA-NAMES", "a name of one branch at a version of another", [
        "nvidia-utils-575: NVIDIA-NAMES: driver nvidia-utils-575 580.178.04 is of branch 580, its name says 575 (ask for nvidia-utils-580, or for a version of branch 575)",
    ], {"nvidia-utils-580:": "nvidia-utils-575:"}),
    Case("NVIDIA-NAMES", "Fabric Manager of another branch beside Ubuntu's -server driver, where its name has one", [
        "nvidia-fabricmanager-575: NVIDIA-NAMES: fabric nvidia-fabricmanager-575 580.178.04 is of branch 580, its name says 575 (ask for nvidia-fabricmanager-580, or for a version of branch 575)",
    ], UBUNTU | {"nvidia-fabricmanager:": "nvidia-fabricmanager-575:"}),
    # branch change 450 -> 460: held broken packages (role-nvidia-driver#33)
    Case("NVIDIA-ONE-BRANCH", "a library of the old branch is left", [
        "brought along: NVIDIA-DRIVER-SET: driver libnvidia-compute-570 570.172.08-0ubuntu1, brought along as a dependency, is not of the version of driver nvidia-dkms-580-open 580.178.04 (ask for libnvidia-compute-570 at 580.178.04, or for the whole set at 570.172.08-0ubuntu1; name each package, a metapackage depends with >=)",
        "brought along: NVIDIA-ONE-BRANCH: driver libnvidia-compute-570 570.172.08-0ubuntu1, brought along as a dependency, is of branch 570, beside driver nvidia-dkms-580-open 580.178.04 of branch 580 (leave one branch, and purge the other in the same change: apt calls the mixture held broken packages)",
    ], closure={"libnvidia-compute-570": ("570.172.08-0ubuntu1", Layer.DRIVER)}),
    # nvidia-fabricmanager-595 of the Ubuntu archive belongs to the -server flavour
    Case("NVIDIA-FLAVOUR", "Ubuntu's signed modules for the -server driver under NVIDIA's libraries", [
        "brought along: NVIDIA-FLAVOUR: kernel linux-modules-nvidia-580-server-open-generic 6.8.0-138.138, brought along as a dependency, is of Ubuntu's -server packages, driver nvidia-driver-580-open 580.178.04 of NVIDIA's repository (take all of them from one: NVIDIA's has nvlsm and libnvsdm, Ubuntu's archive has not)",
    ], closure={"linux-modules-nvidia-580-server-open-generic": ("6.8.0-138.138", Layer.KERNEL)}),
    Case("NVIDIA-FLAVOUR", "Fabric Manager of Ubuntu's archive has no -server in its name", [
        "brought along: NVIDIA-FLAVOUR: fabric nvidia-fabricmanager-595 595.91.07-0ubuntu0.24.04.1, brought along as a dependency, is of Ubuntu's -server packages, driver nvidia-driver-open 595.91.07 of NVIDIA's repository (take all of them from one: NVIDIA's has nvlsm and libnvsdm, Ubuntu's archive has not)",
    ], closure={"nvidia-fabricmanager-595": ("595.91.07-0ubuntu0.24.04.1", Layer.FABRIC)}, example="2026.11-b"),
    # nvidia-driver-590-server-open became a transitional package of 595 at dist-upgrade
    Case("NVIDIA-ONE-BRANCH", "a transitional package of the archive brings the next branch", [
        "brought along: NVIDIA-FLAVOUR: driver nvidia-driver-590-server-open 595.91.07-0ubuntu1, brought along as a dependency, is of Ubuntu's -server packages, driver nvidia-driver-open 595.91.07 of NVIDIA's repository (take all of them from one: NVIDIA's has nvlsm and libnvsdm, Ubuntu's archive has not)",
        "brought along: NVIDIA-ONE-BRANCH: driver nvidia-driver-590-server-open 595.91.07-0ubuntu1, brought along as a dependency, is of branch 590, beside driver nvidia-dkms-open 595.91.07 of branch 595 (leave one branch, and purge the other in the same change: apt calls the mixture held broken packages)",
    ], closure={"nvidia-driver-590-server-open": ("595.91.07-0ubuntu1", Layer.DRIVER)}, example="2026.11-b"),
    Case("NVIDIA-OPEN-MODULES", "the proprietary modules do not know Blackwell", [
        "nvidia-dkms-580: NVIDIA-OPEN-MODULES: driver nvidia-dkms-580 580.178.04 has the proprietary kernel modules, hardware hgx-b200 (NVIDIA B200) works with the open ones only (ask for nvidia-dkms-580-open)",
    ], {"nvidia-dkms-580-open:": "nvidia-dkms-580:"}),
    # without ib_umad or ibstat Fabric Manager does not start (gpu-operator#2781, CanvOS#700)
    Case("NVIDIA-NVLSM", "no nvlsm on fourth-generation NVSwitches", [
        "fabric: NVIDIA-NVLSM: hardware hgx-b200 has NVSwitches of generation 4, fabric has no nvlsm: the subnet manager of these NVSwitches (ask for nvlsm)",
    ], {'      nvlsm: "2025.10.14-1"\n': ""}),
    Case("NVIDIA-NVLSM", "no ibstat for Fabric Manager's start", [
        "fabric: NVIDIA-NVLSM: hardware hgx-b200 has NVSwitches of generation 4, fabric has no infiniband-diags: its ibstat is called by Fabric Manager's start script (ask for infiniband-diags)",
    ], {'      infiniband-diags: "50.0"  # ibstat, which Fabric Manager\'s start calls\n': ""}),
    Case("NVIDIA-NVLSM", "nvlink5-580 wants nvlsm >= 2025.10.12", [
        "nvlsm: NVIDIA-NVLSM: fabric nvlsm 2025.10.11-1 is older than 2025.10.12, which driver nvidia-dkms-580-open 580.178.04 needs (ask for 2025.10.12 or later)",
    ], {"2025.10.14-1": "2025.10.11-1"}),
    # the bridges of the NVSwitches are four more mlx5 devices (siderolabs#893, gpud#1164)
    Case("NCCL-ADAPTERS", "all adapters by the beginning of their names", [
        'nccl_ib_hca: NCCL-ADAPTERS: config nccl_ib_hca "mlx5" takes every adapter whose name begins with mlx5, and hardware hgx-b200 shows 4 bridges of its NVSwitches as mlx5_* adapters (list the compute adapters: nccl_ib_hca: "=mlx5_4,mlx5_7,…")',
    ], {ADAPTERS: "mlx5"}),
    Case("NCCL-ADAPTERS", "mlx5_1 is the beginning of mlx5_10", [
        'nccl_ib_hca: NCCL-ADAPTERS: config nccl_ib_hca "mlx5_0:1,mlx5_1:1" takes every adapter whose name begins with mlx5_1, and hardware hgx-b200 shows 4 bridges of its NVSwitches as mlx5_* adapters (list the compute adapters: nccl_ib_hca: "=mlx5_4,mlx5_7,…")',
    ], {ADAPTERS: "mlx5_0:1,mlx5_1:1"}),
    Case("NCCL-ADAPTERS", "more adapters by name than the compute fabric has", [
        'nccl_ib_hca: NCCL-ADAPTERS: config nccl_ib_hca lists 9 adapters, hardware hgx-b200 has 8 of the compute fabric: bridges of its NVSwitches, or other networks, are among them (list the compute adapters: nccl_ib_hca: "=mlx5_4,mlx5_7,…")',
    ], {ADAPTERS: f"{ADAPTERS},mlx5_0"}),
    Case("NVIDIA-RELEASE", "the CUDA repository for Ubuntu 26.04 has no 580", [
        "os: HARDWARE-SUPPORT: os ubuntu resolute is outside of what hardware hgx-b200 supports: ubuntu noble (DGX OS 7 is Ubuntu 24.04 (NVIDIA/deepops#1392); unverified) (ask for a version of the list, or write an exception with a name and a reason)",
        "nvidia-dkms-580-open: NVIDIA-RELEASE: driver nvidia-dkms-580-open 580.178.04 for os resolute: the oldest branch for that release is 595 (upgrade the driver to 595 first, or stay on the release)",
    ], {"release: noble": "release: resolute"}),
    Case("CUDA-DRIVER", "a driver of before the image's CUDA major version", [
        "nvidia-dkms-575-open: CUDA-DRIVER: driver nvidia-dkms-575-open 575.57.08 is older than 580, the first driver for image CUDA 13.3.0 (from config.values.image_cuda) (CUDA Compatibility, minor version compatibility, table 1) (ask for a driver of 580 or later, or for an image with an earlier CUDA)",
        "datacenter-gpu-manager-4-cuda13: DCGM-CUDA: driver datacenter-gpu-manager-4-cuda13 1:4.6.0-1 is for CUDA 13, driver nvidia-dkms-575-open 575.57.08 has CUDA 12 (ask for datacenter-gpu-manager-4-cuda12)",
    ], {"580.178.04": "575.57.08", "-580": "-575", "nvidia-fabricmanager:": "nvidia-fabricmanager-575:",
        "libnvidia-nscq:": "libnvidia-nscq-575:", "libnvsdm:": "libnvsdm-575:"}),
    Case("DCGM-CUDA", "DCGM of another CUDA major than the image", [
        "datacenter-gpu-manager-4-cuda12: DCGM-CUDA: driver datacenter-gpu-manager-4-cuda12 1:4.6.0-1 is for CUDA 12, the image has CUDA 13.3.0 (from config.values.image_cuda) (ask for datacenter-gpu-manager-4-cuda13)",
    ], {"datacenter-gpu-manager-4-cuda13": "datacenter-gpu-manager-4-cuda12"}),
    # linux-modules-extra missing; a kernel without the modules of the driver
    Case("KERNEL-SET", "no linux-modules-extra (gpu-operator#2781)", [
        "linux-image-6.8.0-138-generic: KERNEL-SET: kernel linux-image-6.8.0-138-generic 6.8.0-138.138 without linux-modules-extra-6.8.0-138-generic (ask for linux-modules-extra-6.8.0-138-generic in the layer kernel, at the same version)",
    ], {'      linux-modules-extra-6.8.0-138-generic: "6.8.0-138.138"\n': ""}),
    Case("KERNEL-SET", "the metapackage is not pinned and brings the next kernel", [
        "linux-image-6.8.0-138-generic: KERNEL-SET: kernel linux-image-6.8.0-138-generic 6.8.0-138.138 without its metapackage linux-image-generic: a newer one brings another kernel (ask for linux-image-generic at the version of linux-image-6.8.0-138-generic)",
    ], {'      linux-image-generic: "6.8.0-138.138"\n': ""}),
    Case("KERNEL-SET", "a metapackage of another release", [
        "linux-generic: KERNEL-SET: kernel linux-generic 6.8.0-142.142 brings another release than kernel linux-image-6.8.0-138-generic 6.8.0-138.138 (ask for linux-generic at the version of linux-image-6.8.0-138-generic)",
    ], {'linux-generic: "6.8.0-138.138"': 'linux-generic: "6.8.0-142.142"'}),
    Case("KERNEL-SET", "a second kernel comes with a metapackage", [
        "brought along: KERNEL-SET: kernel linux-image-6.8.0-142-generic 6.8.0-142.142, brought along as a dependency, is of another release than kernel linux-image-6.8.0-138-generic 6.8.0-138.138 (ask for the one of 6.8.0-138)",
    ], closure={"linux-image-6.8.0-142-generic": ("6.8.0-142.142", Layer.KERNEL)}),
    Case("SECURE-BOOT-DKMS", "nobody signs what DKMS builds", [
        "nvidia-dkms-580-open: SECURE-BOOT-DKMS: driver nvidia-dkms-580-open 580.178.04 is built and signed on the node, hardware hgx-b200 boots with Secure Boot (ask for Canonical's signed linux-modules-nvidia-…-open-generic, enrol a key of your own (MOK) and say so in an exception, or turn Secure Boot off in the model and the machines)",
    ], model={"secure_boot: false": "secure_boot: true"}),
    # origins that fight
    Case("OS-FOREIGN-PINS", "cuda-keyring comes along and pins its repository at 600", [
        "brought along: OS-FOREIGN-PINS: driver cuda-keyring 1.1-1, brought along as a dependency, adds NVIDIA's repository as a source, pinned at 600, dkms and the container toolkit included, beside the pins of the lock (take cuda-keyring out of the environment)",
    ], closure={"cuda-keyring": ("1.1-1", Layer.DRIVER)}),
    Case("OS-FOREIGN-PINS", "unattended-upgrades overrides holds", [
        "brought along: OS-FOREIGN-PINS: os unattended-upgrades 2.9.1, brought along as a dependency, upgrades packages by itself, beside the pins of the lock (take unattended-upgrades out of the environment)",
    ], closure={"unattended-upgrades": ("2.9.1", Layer.OS)}),
    Case("OS-FOREIGN-PINS", "a package of NVIDIA's whose only content is a pin", [
        "brought along: OS-FOREIGN-PINS: driver nvidia-driver-pinning-580 580.178.04-1, brought along as a dependency, pins the driver at 1000 in /etc/apt/preferences.d, beside the pins of the lock (take nvidia-driver-pinning-580 out of the environment)",
    ], closure={"nvidia-driver-pinning-580": ("580.178.04-1", Layer.DRIVER)}),
    Case("OS-FOREIGN-PINS", "needrestart restarts what jobs need", [
        "brought along: OS-FOREIGN-PINS: os needrestart 3.6-7ubuntu4.5, brought along as a dependency, restarts services after a transaction without asking, those that jobs need included (take needrestart out of the environment)",
    ], closure={"needrestart": ("3.6-7ubuntu4.5", Layer.OS)}),
    # pinning only the top one broke a build when the repository moved to 1.19.1
    Case("TOOLKIT-SET", "only the top package of the toolkit is pinned", [
        "nvidia-container-toolkit: TOOLKIT-SET: container nvidia-container-toolkit 1.20.0-1 without libnvidia-container1 (ask for libnvidia-container1 at 1.20.0-1: else the newest comes)",
    ], {'      libnvidia-container1: "1.20.0-1"\n': ""}),
    Case("TOOLKIT-BAD", "1.17.7 is a version that others exclude", [
        f"{name}: TOOLKIT-BAD: container {name} 1.17.7-1 is a known bad version, under any driver: excluded by Google's cluster-toolkit from its GPU images (ask for 1.17.8 or later)"
        for name in ("nvidia-container-toolkit", "nvidia-container-toolkit-base", "libnvidia-container-tools", "libnvidia-container1")
    ], {"1.20.0-1": "1.17.7-1"}),
    Case("DOCKER-CDI", "CDI 0.7.0 of toolkit 1.19 needs Docker 26.1", [
        "docker-ce: DOCKER-CDI: container docker-ce 26.0.2 does not read CDI 0.7.0, which container nvidia-container-toolkit 1.20.0-1 writes (ask for docker-ce 26.1 or later, or for a toolkit before 1.19.0)",
    ], {'docker-ce: "29.7.2"': 'docker-ce: "26.0.2"'}),
    # client version 1.43 is too old, minimum supported API version is 1.44 (dive#664)
    Case("DOCKER-API", "a command that the engine does not listen to", [
        "docker-ce-cli: DOCKER-API: container docker-ce-cli 24.0.9 speaks an API before 1.44, container docker-ce 29.2.1 takes 1.44 and later (ask for docker-ce-cli at 29.2.1)",
    ], {'docker-ce: "29.7.2"': 'docker-ce: "29.2.1"', 'docker-ce-cli: "29.7.2"': 'docker-ce-cli: "24.0.9"'}),
    Case("DOCA-MFT", "nvlink5 brings an mft that collides with DOCA's", [
        "brought along: DOCA-MFT: fabric nvlink5-580 580.178.04-1, brought along as a dependency, brings mft of the CUDA repository, fabric doca-ofed 3.2.3-019000, brought along as a dependency, brings its own (ask for what nvlink5 brings by name: nvidia-fabricmanager, libnvidia-nscq, libnvsdm, nvlsm)",
    ], closure={"nvlink5-580": ("580.178.04-1", Layer.FABRIC), "doca-ofed": ("3.2.3-019000", Layer.FABRIC)}),
    Case("SLURM-SET", "commands of another release than the daemon", [
        "slurm-smd-client: SLURM-SET: scheduler slurm-smd-client 26.05.2-1 is not of the version of scheduler slurm-smd-slurmd 26.05.3-1 (ask for slurm-smd-client at 26.05.3-1)",
    ], {'slurm-smd-client: "26.05.3-1"': 'slurm-smd-client: "26.05.2-1"'}),
    # skew of three releases, controllers first, no downgrade
    Case("SLURM-SKEW", "nodes before their controllers", [
        "slurm-smd-slurmd: SLURM-SKEW: scheduler slurm-smd-slurmd 26.05.3-1 is newer than scheduler slurm-smd-slurmctld 25.11.7-1 of environment 2026.11-controller (upgrade the controllers first: slurmdbd, then slurmctld, then slurmd)",
    ], controller={"26.05.3-1": "25.11.7-1"}),
    Case("SLURM-SKEW", "nodes four releases behind", [
        "slurm-smd-slurmd: SLURM-SKEW: scheduler slurm-smd-slurmd 24.05.8-1 is too old for scheduler slurm-smd-slurmctld 26.05.3-1 of environment 2026.11-controller, which accepts 24.11 and later (ask for 24.11 or later)",
    ], {"26.05.3-1": "24.05.8-1"}),
    Case("SLURM-SKEW", "controllers go past nodes that run", [
        "slurm-smd-slurmctld: SLURM-SKEW: scheduler slurm-smd-slurmctld 26.05.3-1 does not talk to slurmd 24.05.8-1, which gpu[001-640] run (upgrade the nodes by way of a release between the two)",
    ], served=(Served("gpu[001-640]", "24.05.8-1"),), example="2026.11-controller"),
    Case("SLURM-SKEW", "controllers go back behind nodes that run", [
        "slurm-smd-slurmctld: SLURM-SKEW: scheduler slurm-smd-slurmctld 25.11.7-1 does not talk to slurmd 26.05.3-1, which gpu001 run (nodes are never newer than their controllers: take the nodes back first)",
    ], {"26.05.3-1": "25.11.7-1"}, served=(Served("gpu001", "26.05.3-1"),), example="2026.11-controller"),
    Case("SLURM-DOWNGRADE", "the database of the newer release is not read by the older one", [
        f"slurm-smd-{daemon}: SLURM-DOWNGRADE: scheduler slurm-smd-{daemon} 25.11.7-1 is of release 25.11, nodes run scheduler {daemon} 26.05.3-1 of 2026.11-old: the older release does not read what the newer one wrote (stay on 26.05; to go back all the same, restore the database and state of before, and say so in an exception)"
        for daemon in ("slurmctld", "slurmdbd")
    ], {"26.05.3-1": "25.11.7-1"},
        previous={"2026.11-old": {"slurm-smd-slurmctld": "26.05.3-1", "slurm-smd-slurmdbd": "26.05.3-1"}}, example="2026.11-controller"),
    # a database two releases behind is converted, one of four is not (openhpc#186, #216, #670)
    Case("SLURM-JUMP", "controllers go over more releases at once than the newer one reads", [
        f"slurm-smd-{daemon}: SLURM-JUMP: scheduler slurm-smd-{daemon} 26.05.3-1 does not read what 24.05.8-1 of 2026.11-old wrote: 26.05 reads 24.11 and later (upgrade by way of 24.11, 25.05 or 25.11)"
        for daemon in ("slurmctld", "slurmdbd")
    ], previous={"2026.11-old": {"slurm-smd-slurmctld": "24.05.8-1", "slurm-smd-slurmdbd": "24.05.8-1"}}, example="2026.11-controller"),
    Case("SLURM-JUMP", "so far that one release between is not enough; Debian's names", [
        f"slurm-smd-{daemon}: SLURM-JUMP: scheduler slurm-smd-{daemon} 26.05.3-1 does not read what 22.05.8-4 of 2026.11-old wrote: 26.05 reads 24.11 and later (upgrade by way of 23.11, and of another release after it)"
        for daemon in ("slurmctld", "slurmdbd")
    ], previous={"2026.11-old": {"slurmctld": "22.05.8-4", "slurmdbd": "22.05.8-4"}}, example="2026.11-controller"),
    # a SPANK plug-in built for 25.05.4 under another Slurm: slurmd aborts (pyxis#95, #25, #150)
    Case("PYXIS-ABI", "Pyxis built for another Slurm", [
        "nvslurm-plugin-pyxis: PYXIS-ABI: scheduler nvslurm-plugin-pyxis 0.24.0-1 was built for Slurm 25.05 (plugin_version in spank_pyxis.so), and scheduler slurm-smd-slurmd 26.05.3-1: slurmd and srun refuse the plug-in (build Pyxis against Slurm 26.05, and put that package into the archive)",
    ], facts={"spank_abi": "25.05.4"}),
    Case("PYXIS-ABI", "a lock that does not say what Pyxis was built for", [
        "nvslurm-plugin-pyxis: PYXIS-ABI: scheduler nvslurm-plugin-pyxis 0.24.0-1: the lock does not say for which Slurm it was built, scheduler slurm-smd-slurmd 26.05.3-1 refuses any other (lock an environment of another name: what was built for what is read when it is locked)",
    ], facts={"other": "fact"}),
    Case("PYXIS-REQUIRED", "an optional plug-in that fails runs the job on the host, exit code 0", [
        'plugstack: PYXIS-REQUIRED: scheduler plugstack "optional /usr/lib/x86_64-linux-gnu/slurm/spank_pyxis.so": a container job runs on the host, with exit code 0, when the plug-in does not fit (write required instead of optional)',
    ], {"nccl_debug: WARN": "plugstack: optional /usr/lib/x86_64-linux-gnu/slurm/spank_pyxis.so"}),
    Case("PLUGSTACK-INCLUDE", "a file that configless nodes are not given (soperator#2058)", [
        'plugstack: PLUGSTACK-INCLUDE: scheduler plugstack "include /etc/slurm/plugstack.conf.d/*": configless nodes are not given the file, and a container job runs on the host, with exit code 0 (write the lines of that file into plugstack.conf itself)',
    ], {"nccl_debug: WARN": "plugstack: include /etc/slurm/plugstack.conf.d/*"}),
    Case("SPANK-ABI", "a plug-in of the site that was not built again (spank-plugins#199)", [
        "enroot: SPANK-ABI: scheduler enroot 4.1.2-1 has plug-ins for Slurm 25.11, and scheduler slurm-smd-slurmd 26.05.3-1: Slurm refuses to load them (build enroot against Slurm 26.05, and put that package into the archive)",
    ], facts={"spank_abi": "26.05", "spank_abi enroot": "25.11"}),
    Case("ENROOT-SET", "enroot+caps of another release", [
        "enroot+caps: ENROOT-SET: scheduler enroot+caps 3.5.0-1 is not of the version of scheduler enroot 4.1.2-1 (ask for enroot+caps at 4.1.2-1)",
    ], {'enroot+caps: "4.1.2-1"': 'enroot+caps: "3.5.0-1"'}),
    # docker://…:tag@digest on Enroot 3.5 (InferenceX#3346)
    Case("ENROOT-URI", "a digest behind @ on Enroot 3.5", [
        f"image: ENROOT-URI: config docker://reg.local#team/img:1@sha256:{'0' * 64} is understood from Enroot 4.0.0 on, and scheduler enroot 3.5.0-1 (write docker://HOST#PATH:sha256:…, or ask for a newer enroot)",
    ], {"nccl_debug: WARN": f"image: docker://reg.local#team/img:1@sha256:{'0' * 64}", "4.1.2-1": "3.5.0-1"}),
    Case("ENROOT-URI", "a form that no Enroot understands", [
        "image: ENROOT-URI: config docker://nvcr.io#nvidia#x:1: no Enroot understands it, scheduler enroot 4.1.2-1 included (write docker://HOST#PATH:sha256:…, in small letters)",
    ], {"nccl_debug: WARN": "image: docker://nvcr.io#nvidia#x:1"}),
    Case("SQUASHFS-TOOLS", "4.7 to 4.7.4 damage images", [
        "squashfs-tools: SQUASHFS-TOOLS: scheduler squashfs-tools 4.7.4 damages images with sparse files and fragments (squashfs-tools#339, #340): the image that is made or unpacked with it may differ (ask for 4.7.5 or later, or 4.6.1)",
    ], {'squashfs-tools: "4.6.1"': 'squashfs-tools: "4.7.4"'}),
    Case("HARDWARE-SUPPORT", "older than the minimum driver of HGX B200", [
        "nvidia-driver-570-open: HARDWARE-SUPPORT: driver nvidia-driver-570-open 570.124.06 is outside of what hardware hgx-b200 supports for driver: nvidia-driver-*open >=570.133.20 (NVIDIA/cloud-native-docs#184, minimum driver of HGX B200) (ask for a version of the list, or write an exception with a name and a reason)",
    ], {"580.178.04": "570.124.06", "-580": "-570", "nvidia-fabricmanager:": "nvidia-fabricmanager-570:", "libnvidia-nscq:": "libnvidia-nscq-570:",
        "libnvsdm:": "libnvsdm-570:", "cuda13:": "cuda12:", "13.3.0": "12.8.1"}),
    Case("HARDWARE-SUPPORT", "a kernel outside of the list", [
        "linux-image-6.17.0-138-generic: HARDWARE-SUPPORT: kernel linux-image-6.17.0-138-generic 6.17.0-138.138 is outside of what hardware hgx-b200 supports for kernel: linux-image-*-generic >=6.8,<6.9 (the GA kernel of Ubuntu 24.04; DKMS across 6.14, 6.17 and 7.0 is where drivers break; unverified) (ask for a version of the list, or write an exception with a name and a reason)",
    ], {"6.8.0-": "6.17.0-"}),
    # pyxis#175, hang on 25.11.1
    Case("HARDWARE-ISSUE", "Slurm 25.11.1 under Pyxis hangs (pyxis#175)", [
        "slurm-smd-slurmd: HARDWARE-ISSUE PYXIS-175: scheduler slurm-smd-slurmd 25.11.1-1 on this hardware: jobs with containers hang under Pyxis (=25.11.1; NVIDIA/pyxis#175, open) (ask for another version of Slurm)",
    ], {"26.05.3-1": "25.11.1-1"}),
]  # fmt: skip


def judge(case: Case) -> list[Finding]:
    asked = environment(case.example, case.changes)
    above = environment("2026.11-controller", case.controller) if case.controller else None
    facts = case.facts or ({"spank_abi": "26.05"} if case.closure else {})
    return found(subject(
        asked, model(case.model), closure=case.closure, facts=facts, previous=case.previous, served=case.served,
        controller=above,
    ))  # fmt: skip


@pytest.mark.parametrize("case", CASES, ids=lambda case: f"{case.rule} {case.why}")
def test_what_a_rule_refuses_is_told_with_both_layers_both_values_and_the_remedy(case: Case) -> None:
    written = environment_text(case.example, case.changes)
    assert [placed(finding, written) for finding in judge(case) if finding.refuses] == case.expected


@pytest.mark.parametrize("rule", [rule for rule in all_rules() if rule.asked], ids=lambda rule: rule.id)
def test_a_rule_passes_what_is_right(rule: object) -> None:
    good = [
        subject(
            environment("2026.11-a"),
            facts={"spank_abi": "26.05.3"},
            previous={"before": {"slurm-smd-slurmd": "25.11.7-1"}},
        ),
        subject(
            environment("2026.11-b"),
            facts={"spank_abi": "26.05"},
            previous={"before": {"slurm-smd-slurmd": "26.05.4-1"}},
        ),
        subject(
            environment("2026.11-controller"),
            served=(Served("gpu001", "26.05.4-1"), Served("gpu002", "24.11.7-1")),
            previous={"before": {"slurm-smd-slurmctld": "24.11.7-1", "slurm-smd-slurmdbd": "24.11.7-1"}},
        ),
    ]
    assert [finding for each in good for finding in rule.judge(each) if finding.weight is not Weight.NOTE] == []  # type: ignore[attr-defined]


def test_fabric_manager_has_a_branch_in_its_name_beside_ubuntus_own_driver() -> None:
    asked = environment(changes=UBUNTU | {"nvidia-fabricmanager:": "nvidia-fabricmanager-580:"})
    assert refused(found(subject(asked))) == []


# --- what is not known ----------------------------------------------------------------------------


def test_what_pyxis_was_built_for_is_unknown_until_it_is_locked() -> None:
    asked = environment()
    line = asked.document.line("layers", "scheduler", "packages", "nvslurm-plugin-pyxis")
    said = of_weight(found(subject(asked)), Weight.UNKNOWN)
    assert said == [
        f"unknown: 2026.11-a.yml:{line}: PYXIS-ABI: scheduler nvslurm-plugin-pyxis 0.24.0-1: for which Slurm it was built is read out of the package when it is locked (lock the environment)"
    ]


@pytest.mark.parametrize(
    ("changes", "hardware", "rule"),
    [
        ({}, {"nvswitch_generation: 4": "# nothing"}, "NVIDIA-NVLSM"),
        ({}, {"secure_boot: false": "# nothing"}, "SECURE-BOOT-DKMS"),
        ({"    controller: 2026.11-controller\n": ""}, {}, "SLURM-SKEW"),
        ({"26.05.3-1": "27.05.0-1"}, {}, "SLURM-SKEW"),
        ({'image_cuda: "13.3.0"': 'image_cuda: "thirteen"'}, {}, "CUDA-DRIVER"),
    ],
)  # fmt: skip
def test_a_missing_fact_is_unknown_never_a_pass(changes: dict[str, str], hardware: dict[str, str], rule: str) -> None:
    findings = found(subject(environment(changes=changes), model(hardware), facts={"spank_abi": "26.05"}))
    assert rule in {finding.rule for finding in findings if finding.weight is Weight.UNKNOWN}


@pytest.mark.parametrize(
    ("line", "written", "told"),
    [
        ("config", "", "config: NCCL_IB_HCA is not set, and "),
        (
            "nccl_ib_hca",
            '      nccl_ib_hca: "^=mlx5_0,mlx5_1"\n',
            'config nccl_ib_hca "^=mlx5_0,mlx5_1" leaves adapters out, and ',
        ),
    ],
)
def test_what_nccl_takes_where_the_compute_adapters_are_not_named_is_unknown(
    line: str, written: str, told: str
) -> None:
    changes = {f'      nccl_ib_hca: "{ADAPTERS}"\n': written}
    (said,) = [f for f in found(subject(environment(changes=changes))) if f.rule == "NCCL-ADAPTERS"]
    assert said.weight is Weight.UNKNOWN
    assert placed(said, environment_text("2026.11-a", changes)).startswith(
        f"{line}: NCCL-ADAPTERS: {told}hardware hgx-b200 shows 4 bridges of its NVSwitches as mlx5_* adapters"
    )


def test_the_compute_adapters_of_a_machine_without_such_bridges_are_its_own_business() -> None:
    asked = environment(changes={ADAPTERS: "mlx5"})
    older = model({"nvswitch_generation: 4": "nvswitch_generation: 3"})
    assert [f for f in found(subject(asked, older)) if f.rule == "NCCL-ADAPTERS"] == []


def test_a_command_of_before_25_is_heard_again_by_engines_from_29_4_on() -> None:
    asked = environment(changes={'docker-ce-cli: "29.7.2"': 'docker-ce-cli: "24.0.9"'})
    assert refused(found(subject(asked))) == []


def test_signed_modules_of_the_archive_are_a_drivers_kernel_module() -> None:
    changes = {
        '      nvidia-driver-580-server-open: "580.178.04"\n': "",
        '      nvidia-dkms-580-server-open: "580.178.04"\n': "",
    }
    written = UBUNTU | {"nvidia-fabricmanager:": "nvidia-fabricmanager-580:"} | changes
    modules = {"linux-modules-nvidia-580-server-open-generic": ("6.8.0-138.138", Layer.KERNEL)}
    asked = environment(changes=written)
    assert refused(found(subject(asked, closure=modules, facts={"spank_abi": "26.05"}))) == []


@pytest.mark.parametrize("value", ["mlx5_4:1,mlx5_7:1,mlx5_10:1", "=mlx5_0,mlx5_1", ADAPTERS])
def test_adapters_that_are_named_one_by_one_are_no_bridges(value: str) -> None:
    asked = environment(changes={ADAPTERS: value})
    assert [f for f in found(subject(asked)) if f.rule == "NCCL-ADAPTERS"] == []


def test_what_a_release_that_is_not_known_wrote_is_unknown() -> None:
    line = environment("2026.11-controller").document.line("layers", "scheduler", "packages", "slurm-smd-slurmctld")
    before = {"2026.11-old": {"slurm-smd-slurmctld": "21.08.8-1"}}
    assert of_weight(found(subject(environment("2026.11-controller"), previous=before)), Weight.UNKNOWN) == [
        f"unknown: 2026.11-controller.yml:{line}: SLURM-JUMP: scheduler slurm-smd-slurmctld 26.05.3-1 and what 21.08.8-1 of 2026.11-old wrote: a release that is not known (see Slurm's upgrade guide)"
    ]


def test_a_known_issue_that_is_avoided_is_a_note_that_says_how() -> None:
    (said,) = [f for f in found(subject(environment())) if f.issue == "NCT-1967"]
    assert said.weight is Weight.NOTE
    assert said.found.endswith(
        "avoided: nvidia-uvm is loaded and its device nodes are created before the CDI spec is written"
    )


# --- exceptions -----------------------------------------------------------------------------------

OLD_KERNEL = {"6.8.0-": "6.17.0-"}


def exceptions(*rules: str) -> str:
    entries = "".join(
        f"  - rule: {rule}\n    reason: the vendor tried it with us\n    approved_by: Ann\n" for rule in rules
    )
    return f"exceptions:\n{entries}"


def test_an_exception_lifts_a_finding_and_it_stays_visible() -> None:
    asked = environment(changes=OLD_KERNEL, add=exceptions("HARDWARE-SUPPORT"))
    findings = found(subject(asked))
    assert refused(findings) == []
    (lifted,) = [f for f in findings if f.lifted]
    assert str(lifted).endswith(": lifted by Ann: the vendor tried it with us")
    assert lifted.as_dict()["lifted"] == {"approved_by": "Ann", "reason": "the vendor tried it with us"}


def test_an_exception_for_a_known_issue_lifts_that_issue_only() -> None:
    asked = environment(changes={"26.05.3-1": "25.11.1-1", **OLD_KERNEL}, add=exceptions("PYXIS-175"))
    findings = found(subject(asked))
    assert {f.rule for f in findings if f.refuses} == {"HARDWARE-SUPPORT"}
    assert [f.issue for f in findings if f.lifted] == ["PYXIS-175"]


def test_an_exception_that_lifts_nothing_is_a_fault_itself() -> None:
    asked = environment(add=exceptions("HARDWARE-SUPPORT", "NO-SUCH-RULE"))
    first = asked.document.line("exceptions", 0)
    assert first is not None
    assert refused(found(subject(asked))) == [
        f"2026.11-a.yml:{first}: {UNUSED}: the exception for HARDWARE-SUPPORT (Ann: the vendor tried it with us) lifts nothing (remove it)",
        f"2026.11-a.yml:{first + 3}: {UNUSED}: the exception for NO-SUCH-RULE (Ann: the vendor tried it with us) lifts nothing (remove it, or name a rule: bedplate check --rules)",
    ]


def test_an_exception_for_what_a_rollout_alone_can_judge_waits_for_it() -> None:
    asked = environment("2026.11-controller", {"26.05.3-1": "25.11.7-1"}, add=exceptions("SLURM-DOWNGRADE"))
    assert refused(found(subject(asked))) == []
    back = subject(asked, previous={"new": {"slurm-smd-slurmctld": "26.05.3-1"}})
    assert refused(found(back)) == []
    assert [f.rule for f in found(back) if f.lifted] == ["SLURM-DOWNGRADE"]


# --- names ----------------------------------------------------------------------------------------

# Of the CUDA repository for ubuntu2404, each with the branch that it is of.
REAL_NAMES = [
    (575, ("nvidia-open-575", "nvidia-driver-575-open", "nvidia-dkms-575-open", "libnvidia-compute-575", "nvidia-utils-575",
           "nvidia-fabricmanager-575", "libnvidia-nscq-575", "libnvsdm-575", "nvidia-imex-575", "nvlink5-575", "nvidia-persistenced")),
    (580, ("nvidia-open-580", "nvidia-driver-580-open", "nvidia-dkms-580-open", "libnvidia-compute-580", "nvidia-compute-utils-580",
           "nvidia-fabricmanager", "libnvidia-nscq", "libnvsdm", "nvidia-imex", "nvlink5-580", "nvidia-modprobe", "cuda-drivers-580")),
    (595, ("nvidia-open", "nvidia-driver-open", "nvidia-dkms-open", "libnvidia-compute", "nvidia-utils", "nvidia-fabricmanager",
           "libnvidia-nscq", "libnvsdm", "nvidia-imex", "nvlink5", "nvidia-persistenced", "cuda-drivers")),
]  # fmt: skip


@pytest.mark.parametrize(("branch", "name"), [(branch, name) for branch, names in REAL_NAMES for name in names])
def test_a_real_name_is_the_name_of_its_branch_and_moves_with_the_driver(branch: int, name: str) -> None:
    said = nvidia(name)
    assert said is not None
    assert said.named(branch) == name


@pytest.mark.parametrize(
    "name",
    ["nvidia-container-toolkit", "libnvidia-container1", "nvidia-driver-pinning-580", "libnvidia-egl-wayland1", "nvidia-settings",
     "nvlsm", "nvidia-prime", "libnvidia-nscq-580-dbg", "cuda-toolkit-13-0", "linux-modules-nvidia-580-open-generic"],
)  # fmt: skip
def test_what_has_a_version_of_its_own_does_not_move_with_the_driver(name: str) -> None:
    assert nvidia(name) is None


@given(st.text(alphabet="abcdefghijklmnopqrstuvwxyz0123456789-+.", min_size=2, max_size=40))
def test_any_name_of_a_package_is_read_or_left(name: str) -> None:
    for read in (nvidia, prebuilt, kernel):
        read(name)
    assert slurm(name) in (True, False)


# --- the pieces -----------------------------------------------------------------------------------

D = "sha256:" + "0" * 64


@pytest.mark.parametrize(
    ("uri", "expected"),
    [
        (f"docker://reg.local#team/img:{D}", "3.0"), (f"docker://reg.local#team/img@{D}", "4.0.0"),
        (f"docker://reg.local#team/img:1@{D}", "4.0.0"), (f"docker://reg.local/team/img@{D}", "4.0.0"),
        ("docker://reg.local/team/img:1", "4.0.0"), ("docker://reg.local:5000/team/img:1", "4.0.0"),
        ("docker://registry/team/img:1", "3.0"), ("docker://$oauthtoken@nvcr.io#nvidia/pytorch:26.06-py3", "3.0"),
        ("docker://nvcr.io#nvidia#x:1", None), ("docker://reg#Team/Img:1", None), (f"docker://team/img@{D}", "4.0.0"),
    ],
)  # fmt: skip
def test_the_first_enroot_that_understands_a_form_of_uri(uri: str, expected: str | None) -> None:
    assert minimum(uri) == expected


@pytest.mark.parametrize(
    ("controller", "node", "expected"),
    [
        ((26, 5), (24, 11), True), ((26, 5), (24, 5), False), ((26, 5), (26, 11), False), ((24, 5), (23, 2), True),
        ((24, 5), (22, 5), False), ((26, 5), (26, 5), True), ((27, 5), (26, 5), None), ((27, 5), (27, 5), True),
    ],
)  # fmt: skip
def test_controllers_accept_three_earlier_releases_from_24_11_on_and_two_before(
    controller: tuple[int, int], node: tuple[int, int], expected: bool | None
) -> None:
    assert accepts(controller, node) is expected
