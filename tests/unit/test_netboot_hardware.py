"""What stops an installation before a disk is wiped, data on it, parts of another machine; the logs of what failed."""

import io
import tarfile
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from bedplate.decide.netboot import hardware
from bedplate.model.faults import BadInput
from bedplate.sources.site import open_site
from unit.netboot_sample import recipe, write_example
from unit.programs import node_program
from unit.site_sample import replace_in

EXPECTED: dict[str, Any] = {
    "node": "n1", "serial": "SN-1", "macs": ["02:00:00:00:01:00", "02:00:00:00:01:09"], "boot_disk_serials": ["DISK-1"],
    "disks": None, "nic_macs": [], "bios_versions": [], "bmc_address": None, "url": "http://127.0.0.1:9",
    "path": "n1/TOKEN",
}  # fmt: skip


@pytest.fixture
def node() -> ModuleType:
    return node_program()


def machine(**changed: Any) -> dict[str, Any]:
    return {
        "dmi": {"product_serial": "SN-1"},
        "disks": [{"name": "nvme0n1", "serial": "DISK-1"}],
        "nics": [{"mac": "02:00:00:00:01:00", "carrier": "1"}, {"mac": "02:00:00:00:01:09", "carrier": None}],
    } | changed


def disk(**changed: Any) -> dict[str, Any]:
    return machine(disks=[{"name": "nvme0n1", "serial": "DISK-1"} | changed])


HOLDS = "boot disk DISK-1 holds data: {} has the label {!r} (correct boot_disk_serials, or wipe it by hand)"
DISKS = [
    # the boot disk as lsblk tells it, what is told of it
    ({"label": "data"}, [HOLDS.format("nvme0n1", "data")]),
    ({"label": "DATA-03"}, [HOLDS.format("nvme0n1", "DATA-03")]),
    ({"children": [{"name": "nvme0n1p1", "partlabel": "raid_data"}]}, [HOLDS.format("nvme0n1p1", "raid_data")]),
    ({"children": [{"name": "nvme0n1p1", "children": [{"name": "md0", "label": "data0"}]}]},
     [HOLDS.format("md0", "data0")]),
    ({"children": [{"name": "nvme0n1p2", "label": "root", "mountpoint": "/mnt"}]},
     ["boot disk DISK-1 is in use: nvme0n1p2 is mounted at /mnt"]),
    ({"label": None, "children": [{"name": "a", "label": "root"}, {"name": "b", "label": "ESP0"}]}, []),
    ({"children": [{"name": "a", "partlabel": "Basic data partition"}, {"name": "b", "partlabel": "database"}]}, []),
]  # fmt: skip


@pytest.mark.parametrize(("changed", "told"), DISKS)
def test_a_boot_disk_that_holds_data_or_is_mounted_is_not_wiped(
    node: ModuleType, changed: dict[str, Any], told: list[str]
) -> None:
    found = disk(**changed)
    assert hardware.differences(EXPECTED, found) == told
    assert list(node.differences(EXPECTED, found)) == told, "the machine stops by itself"


def test_a_disk_of_data_that_is_no_boot_disk_is_none_of_its_business() -> None:
    found = machine(disks=[{"name": "a", "serial": "DISK-1"}, {"name": "b", "serial": "D9", "label": "data0"}])
    assert hardware.differences(EXPECTED, found) == []


def test_a_management_port_without_a_link_is_named(node: ModuleType) -> None:
    found = machine(nics=[{"mac": "02:00:00:00:01:00", "carrier": "0"}, {"mac": "02:00:00:00:01:09", "carrier": None}])
    told = ["interface with MAC 02:00:00:00:01:00 has no link: no cable, or one in another port"]
    assert hardware.differences(EXPECTED, found) == told
    assert list(node.differences(EXPECTED, found)) == told


@pytest.mark.parametrize(
    ("found", "told"),
    [
        (machine(), []),
        (machine(nics=[{"mac": "02:00:00:00:02:00"}]), ["MAC 02:00:00:00:02:00 is of n2: a swapped adapter"]),
        (machine(nics=[{"mac": "00:00:11:22:fe:80:00:00:00:00:00:00:98:03:9b:03:00:00:00:01"}]),
         ["MAC 98:03:9b:00:00:01 is of n3: a swapped adapter"]),
        (machine(disks=[{"name": "a", "serial": " DISK-2 "}]), ["disk DISK-2 is of n2: a swapped disk"]),
        (machine(disks=[{"name": "a", "serial": "DISK-22"}]), []),
        (None, []), ({"nics": 1, "disks": [1, {"serial": []}]}, []),
    ],
)  # fmt: skip
def test_a_part_that_is_of_another_machine_is_named_with_that_machine(found: object, told: list[str]) -> None:
    of_mac = {"02:00:00:00:01:00": "n1", "02:00:00:00:02:00": "n2", "98:03:9b:00:00:01": "n3"}
    assert hardware.foreign("n1", found, of_mac, {"DISK-1": "n1", "DISK-2": "n2"}) == told


def test_interfaces_that_nobody_wrote_down_are_recorded_and_stop_nothing() -> None:
    found = machine(nics=[*machine()["nics"], {"mac": "02:AA:00:00:00:01"}])
    assert hardware.differences(EXPECTED, found) == []
    assert hardware.unknown(EXPECTED, found) == ["1 interfaces that nodes.csv does not have: 02:aa:00:00:00:01"]


def test_a_node_without_all_its_adapters_in_the_fleet_is_not_rendered(tmp_path: Path) -> None:
    write_example(tmp_path / "site")
    replace_in(tmp_path / "site/nodes.csv", " 02:00:00:00:01:08", "")
    with pytest.raises(BadInput) as caught:
        recipe(open_site(tmp_path / "site")).nodes(["gpu001", "gpu002"])
    assert len(caught.value.faults) == 1
    assert (
        "nodes.csv:2: node gpu001 has 7 nic_macs, its model hgx-b200 has 8 (its machine is compared with them"
        in str(caught.value)
    )


# --- logs ------------------------------------------------------------------------------------------------------


@pytest.fixture
def logs(node: ModuleType, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> tuple[Path, dict[str, bytes]]:
    """A machine's logs below a directory, and what it sends of them."""
    sent: dict[str, bytes] = {}
    monkeypatch.setattr(node, "LOGS", (str(tmp_path / "installer"), str(tmp_path / "seed.yaml"), str(tmp_path / "no")))
    monkeypatch.setattr(node, "CRASHES", (str(tmp_path / "crash"),))

    def send(url: str, data: bytes, kind: str, method: str) -> tuple[int, str]:
        assert (kind, method) == ("application/gzip", "PUT")
        assert url.startswith("http://127.0.0.1:9/upload/n1/TOKEN/")
        sent[url.rpartition("/")[2]] = data
        return 201, ""

    monkeypatch.setattr(node, "send", send)
    (tmp_path / "installer/curtin").mkdir(parents=True)
    (tmp_path / "installer/curtin/install.log").write_text("no mirror\n")
    (tmp_path / "seed.yaml").write_text("autoinstall\n")
    (tmp_path / "crash").mkdir()
    return tmp_path, sent


def names(data: bytes) -> list[str]:
    with tarfile.open(fileobj=io.BytesIO(data)) as tar:
        return [Path(name).name for name in tar.getnames()]


def test_the_logs_that_the_failure_needs_are_those_that_are_sent(node: ModuleType) -> None:
    """Of subiquity: /var/log/installer, /var/crash, and the seed as it was read."""
    assert {"/var/log/installer", "/run/subiquity/cloud.autoinstall.yaml"} <= set(node.LOGS)
    assert node.CRASHES == ("/var/crash",)


def test_logs_and_crashes_are_sent_apart_and_no_empty_archive(
    node: ModuleType, logs: tuple[Path, dict[str, bytes]]
) -> None:
    folder, sent = logs
    assert node.tell_logs(EXPECTED) == 0
    assert {name: names(data) for name, data in sent.items()} == {"installer-logs.tar.gz": ["install.log", "seed.yaml"]}
    (folder / "crash/1234.crash").write_bytes(b"x" * 100)
    assert node.tell_logs(EXPECTED) == 0
    assert names(sent["installer-crashes.tar.gz"]) == ["1234.crash"]


def test_a_crash_that_is_too_large_keeps_no_log_back_and_is_said(
    node: ModuleType, logs: tuple[Path, dict[str, bytes]], monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:  # fmt: skip
    folder, sent = logs
    (folder / "crash/1234.crash").write_bytes(bytes(range(256)) * 40)
    monkeypatch.setattr(node, "MOST_LOG_BYTES", 400)
    assert node.tell_logs(EXPECTED) == 0
    assert list(sent) == ["installer-logs.tar.gz"]
    assert "installer-crashes.tar.gz: " in capsys.readouterr().err
    assert len(sent["installer-logs.tar.gz"]) <= 400


def test_a_log_that_cannot_be_read_and_a_server_that_is_away_end_no_installation(
    node: ModuleType, logs: tuple[Path, dict[str, bytes]], monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:  # fmt: skip
    folder, _ = logs
    whole = Path.read_bytes

    def read(path: Path) -> bytes:
        if path.name == "install.log":
            raise OSError(5, "Input/output error")
        return whole(path)

    monkeypatch.setattr(Path, "read_bytes", read)
    monkeypatch.setattr(node, "send", lambda *_: (0, "connection refused"))
    assert node.tell_logs(EXPECTED) == 0
    said = capsys.readouterr().err
    assert f"{folder}/installer/curtin/install.log: left out of the logs: Input/output error" in said
    assert "installer-logs.tar.gz: not taken: nobody answers connection refused" in said
