"""The files that slurmctld hands out, of the example site at its real size: 640 nodes, 20 spares, 8 without GPUs."""

import re
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from jinja2 import UndefinedError

from bedplate.decide.render import JINJA
from bedplate.decide.surroundings import surroundings
from bedplate.model.fleet import Fleet
from bedplate.model.hardware import Cpu, HardwareModel
from bedplate.sources import checkout
from bedplate.sources.site import open_site

ROLES = checkout.root() / "roles"
PYXIS = {"name": "nvslurm-plugin-pyxis", "version": "0.24.0-1"}


@pytest.fixture(scope="module")
def fleet() -> Fleet:
    return open_site(Path(checkout.root()) / "inventory").fleet


def models(**changes: Any) -> dict[str, HardwareModel]:
    """Models whose machines are known: the example leaves open what their manufacturers decide."""

    def model(name: str, **more: Any) -> HardwareModel:
        told: dict[str, Any] = {
            "vendor": "V",
            "description": "",
            "stand_in": False,
            "gpus": 0,
            "gpu_product": None,
            "nics": 2,
        }
        return HardwareModel(model=name, **(told | more))

    gpu = model(
        "hgx-b200", gpus=8, gpu_product="NVIDIA B200", gpu_type="b200", cpu=Cpu(2, 56, 2), memory_mib=2_063_937
    )  # fmt: skip
    return {
        "hgx-b200": replace(gpu, **changes),
        "cpu-2s": model("cpu-2s", cpu=Cpu(2, 32, 2), memory_mib=515_000),
        "service-1u": model("service-1u"),
    }


def rendered(name: str, fleet: Fleet, known: dict[str, HardwareModel], **more: Any) -> str:
    scope: dict[str, Any] = {
        **surroundings(fleet, known, (), {"C": ["controller"]}),
        "environment": {"name": "C"}, "layers": {"scheduler": {}}, "values": {}, "packages": [PYXIS],
    }  # fmt: skip
    role = more.pop("role", "slurm_controller")
    text = (ROLES / role / "templates" / f"{name}.j2").read_text()
    return JINJA.from_string(text).render(scope | more)


def lines(text: str, begin: str) -> list[str]:
    return [line for line in text.splitlines() if line.startswith(begin)]


def test_every_machine_with_a_partition_is_a_node_once_and_no_other_is(fleet: Fleet) -> None:
    text = rendered("slurm.conf", fleet, models())
    names = [line.split()[0].removeprefix("NodeName=") for line in lines(text, "NodeName=")]
    assert sorted(name for name in names if name != "DEFAULT") == sorted(
        node.name for node in fleet.nodes.values() if node.partition
    )
    assert len(names) == 668 + 2
    assert "NodeName=gpu001 NodeAddr=10.20.1.1\n" in text
    assert "NodeName=gpu660 NodeAddr=10.20.4.20\n" in text


def test_nodes_have_what_their_model_has_with_less_memory_than_it(fleet: Fleet) -> None:
    cpu, gpu = lines(rendered("slurm.conf", fleet, models()), "NodeName=DEFAULT")
    assert gpu == (
        "NodeName=DEFAULT Sockets=2 CoresPerSocket=56 ThreadsPerCore=2 RealMemory=2022658 Gres=gpu:b200:8 State=UNKNOWN"
    )
    assert cpu == "NodeName=DEFAULT Sockets=2 CoresPerSocket=32 ThreadsPerCore=2 RealMemory=504700 Gres= State=UNKNOWN"


def test_partitions_are_the_fleets_and_small_jobs_are_on_the_training_machines(fleet: Fleet) -> None:
    text = rendered("slurm.conf", fleet, models())
    partitions = {line.split()[0].removeprefix("PartitionName="): line for line in lines(text, "PartitionName=")}
    assert list(partitions) == ["cpu", "spare", "training", "small"]
    for name, nodes in (
        ("cpu", "cpu[01-08]"), ("spare", "gpu[641-660]"), ("training", "gpu[001-640]"), ("small", "gpu[001-640]"),
    ):  # fmt: skip
        assert f" Nodes={nodes} " in partitions[name]
    assert "Default=YES" in partitions["training"]
    assert "Default" not in partitions["small"] + partitions["spare"] + partitions["cpu"]
    assert "AllowQos=spare,training" in partitions["spare"]
    tiers = {name: int(re.findall(r"PriorityTier=(\d+)", line)[0]) for name, line in partitions.items()}
    assert tiers["training"] > tiers["small"] > tiers["spare"]
    # A job that names no memory gets its share, not all there is: 2022658 MiB of 224 threads.
    assert "DefMemPerCPU=9029 " in partitions["training"]


def test_each_rack_is_a_leaf_of_the_topology_and_racks_without_nodes_are_none(fleet: Fleet) -> None:
    text = rendered("topology.conf", fleet, models())
    switches = lines(text, "SwitchName=")
    assert switches[0] == "SwitchName=r001 Nodes=gpu[001-004]"
    assert switches[-1] == "SwitchName=all Switches=r[001-166]"
    assert len(switches) == 166 + 1


def test_eight_device_files_stand_for_eight_gpus(fleet: Fleet) -> None:
    text = rendered("gres.conf", fleet, models())
    assert lines(text, "NodeName=") == ["NodeName=gpu[001-660] Name=gpu Type=b200 File=/dev/nvidia[0-7]"]


def test_the_controller_is_named_with_its_address(fleet: Fleet) -> None:
    text = rendered("slurm.conf", fleet, models())
    assert lines(text, "SlurmctldHost=") == ["SlurmctldHost=ctl1(10.20.0.11)"]
    assert "AccountingStorageHost=ctl1\n" in text
    above = {"layers": {"scheduler": {"controller": "C"}}, "environment": {"name": "A"}}
    node = rendered("slurmd.default", fleet, models(), role="slurm_node", **above)
    assert 'SLURMD_OPTIONS="--conf-server 10.20.0.11:6817"\n' in node


def test_a_boot_of_eight_gpus_is_waited_for(fleet: Fleet) -> None:
    text = rendered("slurm.conf", fleet, models())
    assert int(re.findall(r"^ResumeTimeout=(\d+)$", text, re.MULTILINE)[0]) >= 900
    assert "SlurmctldParameters=enable_configless\n" in text
    assert "PreemptType=preempt/qos\nPreemptMode=REQUEUE\n" in text


def test_what_a_model_has_on_paper_is_believed_where_the_environment_says_so_and_then_not_constrained(
    fleet: Fleet,
) -> None:
    said = {"slurm_config_overrides": "yes"}
    assert "SlurmdParameters=config_overrides\n" in rendered("slurm.conf", fleet, models(), values=said)
    assert "config_overrides" not in rendered("slurm.conf", fleet, models())
    assert "config_overrides" not in rendered("slurm.conf", fleet, models(stand_in=True)), "a role cannot tell"
    assert "ConstrainCores=no\n" in rendered("cgroup.conf", fleet, models(), values=said)
    real = rendered("cgroup.conf", fleet, models())
    assert "ConstrainCores=yes\n" in real
    assert "ConstrainDevices=yes\n" in real


def test_pyxis_is_required_and_inline_where_the_controllers_have_it_and_absent_where_not(fleet: Fleet) -> None:
    with_it = lines(rendered("plugstack.conf", fleet, models()), "required")
    plugin = "required /usr/lib/x86_64-linux-gnu/slurm/spank_pyxis.so runtime_path=/run/pyxis container_scope=job"
    assert with_it == [f"{plugin} importer=/usr/local/libexec/bedplate-importer"]
    without = rendered("plugstack.conf", fleet, models(), packages=[])
    assert [line for line in without.splitlines() if not line.startswith("#")] == []


@pytest.mark.parametrize(
    ("version", "values", "importer"),
    [
        ("0.21.0-1", {}, " importer=/usr/local/libexec/bedplate-importer"),
        ("1.0.0-1", {}, " importer=/usr/local/libexec/bedplate-importer"),
        ("1:0.24.0-1", {"pyxis_importer": "/opt/site/importer"}, " importer=/opt/site/importer"),
        ("0.24.0-1", {"pyxis_importer": "none"}, ""),
        ("0.20.0-1", {}, ""),  # an unknown word keeps this plug-in from loading
        ("0.9.1-1", {}, ""),
    ],
)
def test_pyxis_asks_the_importer_where_it_knows_of_one_and_the_environment_has_it(
    fleet: Fleet, version: str, values: dict[str, str], importer: str
) -> None:
    text = rendered("plugstack.conf", fleet, models(), packages=[PYXIS | {"version": version}], values=values)
    line = lines(text, "required")[0]
    scope = "" if version.startswith(("0.20", "0.9")) else " container_scope=job"
    assert line.endswith(f"runtime_path=/run/pyxis{scope}{importer}")


@pytest.mark.parametrize(("lost", "said"), [("cpu", "says_no_cpu"), ("memory_mib", "says_no_memory_mib")])
def test_a_model_without_cores_or_memory_is_named_and_nothing_is_guessed(fleet: Fleet, lost: str, said: str) -> None:
    with pytest.raises(UndefinedError, match=said):
        rendered("slurm.conf", fleet, models(**{lost: None}))
