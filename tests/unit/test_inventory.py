"""The fleet as Ansible's inventory."""

import subprocess
import sys
from pathlib import Path

import pytest
from ansible import constants
from ansible.inventory.data import InventoryData
from ansible.parsing.dataloader import DataLoader

from bedplate.doors import site as site_door
from bedplate.doors.inventory import InventoryModule
from unit.site_sample import replace_in, write_site

CHECKOUT = Path(__file__).parents[2]


def ansible(program: str, *words: str | Path) -> subprocess.CompletedProcess[str]:
    """Ansible itself, started where a user starts it: it finds ansible.cfg and with it the plug-ins."""
    argv = [Path(sys.executable).parent / program, *words]
    return subprocess.run(argv, cwd=CHECKOUT, capture_output=True, text=True, check=False, timeout=120)


@pytest.fixture
def site(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setattr(site_door, "parsed", [])
    return write_site(tmp_path)


def inventory(site: Path) -> InventoryData:
    data = InventoryData()
    plugin = InventoryModule()
    assert plugin.verify_file(str(site / "fleet.yml"))
    plugin.parse(data, DataLoader(), str(site / "fleet.yml"))
    return data


def members(data: InventoryData, group: str) -> list[str]:
    return [str(host.name) for host in data.groups[group].get_hosts()]


def test_groups_are_those_of_the_fleet_and_kind_rack_partition(site: Path) -> None:
    data = inventory(site)
    assert members(data, "training") == ["n1", "n2", "n3", "n4", "n5", "n6"]
    assert members(data, "reference") == ["n1"]
    assert members(data, "kind_controller") == ["ctl"]
    assert members(data, "rack_r02") == ["n5", "n6", "n7", "n8"]
    assert members(data, "partition_spare") == ["n7", "n8"]


def test_a_group_without_nodes_is_there_and_empty(site: Path) -> None:
    replace_in(site / "fleet.yml", "  controller: {nodes", '  login: {nodes: ""}\n  controller: {nodes')
    assert members(inventory(site), "login") == []


def test_a_host_knows_what_the_fleet_knows_of_it(site: Path) -> None:
    host = inventory(site).hosts["n1"].vars
    assert host["ansible_host"] == "10.77.0.11"
    assert host["bedplate_node"] == {
        "name": "n1", "serial": "LAB-1", "address": "10.77.0.11", "bmc_address": "10.78.0.11",
        "boot_mac": "02:00:00:00:01:00", "nic_macs": ["02:00:00:00:01:01", "02:00:00:00:01:02"],
        "rack": "r01", "position": 1, "groups": ["reference", "training"], "kind": "gpu", "partition": "training",
    }  # fmt: skip


def test_what_is_the_same_for_all_hosts_stands_once(site: Path) -> None:
    common = inventory(site).groups["all"].vars
    assert (common["ansible_user"], common["ansible_port"]) == ("root", 22)
    assert common["ansible_ssh_private_key_file"] == "/root/.ssh/id_ed25519"
    assert common["bedplate_site"] == str(site)
    assert "ansible_connection" not in common


def test_only_host_keys_of_the_site_are_trusted(site: Path) -> None:
    common = inventory(site).groups["all"].vars
    assert f'UserKnownHostsFile="{site / "known_hosts"}"' in common["ansible_ssh_common_args"]
    assert "StrictHostKeyChecking=yes" in common["ansible_ssh_common_args"]
    assert "GlobalKnownHostsFile=/dev/null" in common["ansible_ssh_common_args"]
    assert "ControlPersist" in common["ansible_ssh_args"]


def test_the_other_plugins_learn_the_site_from_the_inventory(site: Path) -> None:
    inventory(site)
    assert site_door.current().root == site


def test_hosts_of_an_example_are_refused(site: Path) -> None:
    replace_in(site / "fleet.yml", "site: sample", "site: sample\nexample: true")
    assert inventory(site).groups["all"].vars["ansible_connection"] == "bedplate_refused"


def test_another_file_is_left_to_other_plugins(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "hosts.yml").touch()
    monkeypatch.setattr(constants, "INVENTORY_ENABLED", ["bedplate", "yaml"])
    assert not InventoryModule().verify_file(str(tmp_path / "hosts.yml"))


@pytest.mark.slow
def test_a_fleet_with_faults_stops_ansible_with_all_of_them(site: Path) -> None:
    replace_in(site / "fleet.yml", '"n[1-6]"', '"n[1-6"')
    replace_in(site / "nodes.csv", "LAB-2", "LAB-1")
    done = ansible("ansible-inventory", "-i", site / "fleet.yml", "--list")
    assert done.returncode != 0
    assert f'{site}/fleet.yml:19: groups.training.nodes: "n[1-6" is no host list: missing bracket' in done.stderr
    assert f"{site}/nodes.csv:4: serial LAB-1 stands there twice, first in line 3" in done.stderr


@pytest.mark.slow
def test_the_example_is_the_default_and_refuses_every_connection() -> None:
    done = ansible("ansible", "gpu001", "-m", "ansible.builtin.raw", "-a", "true")
    assert done.returncode == 2
    assert "refused: the site's fleet.yml says `example: true`" in done.stdout
    assert "UNREACHABLE" not in done.stdout


def listed(site: Path, *words: str) -> tuple[int, str]:
    done = ansible("ansible-playbook", "-i", site / "fleet.yml", "playbooks/verify.yml", "--list-hosts", *words)
    return done.returncode, done.stdout + done.stderr


@pytest.mark.slow
@pytest.mark.parametrize(
    ("limit", "said"),
    [
        ("n[1,3]", "--limit takes Ansible's patterns; 'n[1,3]' is: --limit n1,n3"),
        ("n1,n9", "the fleet has no node n9, and no such group; nearest: n"),
    ],
)
def test_a_limit_that_ansible_would_read_otherwise_is_refused(site: Path, limit: str, said: str) -> None:
    code, out = listed(site, "--limit", limit)
    assert code != 0
    assert said in " ".join(out.split())


@pytest.mark.slow
def test_the_form_to_paste_is_what_was_meant(site: Path) -> None:
    code, out = listed(site, "--limit", "training,&~(n1|n3)$,!n3")
    assert code == 0, out
    assert "hosts (1):\n      n1\n" in out


@pytest.mark.slow
@pytest.mark.parametrize(
    ("given", "said"),
    [
        (
            ".",
            "environments/A.yml: is not a site's fleet.yml; the inventory is the fleet.yml of a site: -i {}/fleet.yml",
        ),
        ("nope.yml", "nope.yml: no such file; the inventory is the fleet.yml of a site: -i {}/fleet.yml"),
    ],
)
def test_what_is_no_inventory_is_told_which_file_is_one(site: Path, given: str, said: str) -> None:
    done = ansible("ansible-playbook", "-i", site / given, "playbooks/verify.yml", "--list-hosts")
    assert done.returncode != 0
    assert said.format(site) in " ".join(done.stderr.split())
