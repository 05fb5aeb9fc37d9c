"""The program that a machine runs while it is installed: what it compares, and when it stops."""

# ruff: noqa: E501  tables stand in one line

import dataclasses
import io
import json
import tarfile
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from bedplate.act.arming import file_faults
from bedplate.decide.netboot import hardware
from bedplate.model.canonical import sha256
from bedplate.model.netboot import BootFile
from unit.netboot_sample import example
from unit.programs import node_program

EXPECTED = {
    "node": "n1", "serial": "SN-1", "macs": ["02:00:00:00:01:00"], "boot_disk_serials": ["DISK-1", "DISK-2"], "disks": 3,
    "url": "http://127.0.0.1:9", "path": "n1/TOKEN", "nic_macs": ["98:03:9b:00:00:01"], "bios_versions": ["2.1"],
    "bmc_address": "10.1.0.1", "bmc_versions": ["1.74"],
}  # fmt: skip


@pytest.fixture
def node(monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    module = node_program()
    monkeypatch.setattr(module, "PAUSE_S", 0)
    return module


def inventory(**changed: Any) -> dict[str, Any]:
    disks = [
        {"name": "sda", "serial": "DISK-1"},
        {"name": "sdb", "serial": "DISK-2"},
        {"name": "nvme0n1", "serial": None},
    ]
    fabric = "00:00:11:22:fe:80:00:00:00:00:00:00:98:03:9b:03:00:00:00:01"  # an InfiniBand port
    return {
        "dmi": {"product_serial": "SN-1", "bios_version": "2.1"}, "disks": disks,
        "nics": [{"mac": "02:00:00:00:01:00"}, {"mac": fabric}], "bmc": {"address": "10.1.0.1", "mac": "x", "firmware": "1.74"},
    } | changed  # fmt: skip


@pytest.mark.parametrize(
    "changed",
    [
        {}, {"dmi": {"product_serial": "X"}}, {"dmi": {}}, {"nics": []}, {"disks": []}, {"bmc": None},
        {"nics": [{"mac": "02:00:00:00:01:00"}, {"mac": "98:03:9b:00:00:02"}]}, {"bmc": {"address": "10.1.0.2"}},
        {"bmc": {"firmware": "1.60"}}, {"dmi": {"product_serial": "SN-1", "bios_version": "1.9"}},
        {"disks": [{"name": "sda", "serial": "DISK-1"}, {"name": "sdb", "serial": "DISK-1"}, {"name": "c", "serial": "DISK-2"}]},
        {"disks": [{"name": "sda", "serial": "DISK-1", "label": "data0", "children": [{"name": "sda1", "partlabel": "raid-data", "mountpoint": "/raid"}]}]},
        {"nics": [{"mac": "02:00:00:00:01:00", "carrier": "0"}]},
    ],
)  # fmt: skip
def test_the_machine_and_the_server_judge_alike(node: ModuleType, changed: dict[str, Any]) -> None:
    found = inventory(**changed)
    assert list(node.differences(EXPECTED, found)) == hardware.differences(EXPECTED, found)


@pytest.mark.parametrize(
    ("changed", "told"),
    [
        ({}, []),
        ({"nics": [{"mac": "02:00:00:00:01:00"}]}, ["no fabric adapter with MAC 98:03:9b:00:00:01"]),
        ({"bmc": {"address": "10.1.0.2"}}, ["BMC address 10.1.0.2, expected 10.1.0.1"]),
        ({"dmi": {"product_serial": "SN-1", "bios_version": "1.9"}}, ["firmware '1.9', its model's list has 2.1"]),
        ({"bmc": {"firmware": "1.60"}}, ["firmware of the BMC '1.60', its model's list has 1.74"]),
        ({"bmc": None}, []),
    ],
)
def test_fabric_adapters_firmware_and_bmc_are_compared_too(changed: dict[str, Any], told: list[str]) -> None:
    assert hardware.differences(EXPECTED, inventory(**changed)) == told


def test_what_a_machine_does_not_say_is_unknown_and_recorded_as_that() -> None:
    assert hardware.unknown(EXPECTED, inventory()) == []
    address, firmware = hardware.unknown(EXPECTED, inventory(bmc=None))
    assert "BMC address" in address
    assert "BMC firmware" in firmware


def test_a_bmc_is_asked_for_its_address_and_its_firmware(
    node: ModuleType, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Two questions: a BMC that answers one of them only has told that much."""
    program = tmp_path / "ipmitool"
    program.write_text(
        '#!/bin/sh\ncase "$*" in\n'
        '"lan print") printf "IP Address Source : Static\\nIP Address : 10.1.0.1\\nMAC Address : 0C:C4:7A:00:00:01\\n";;\n'
        '"mc info") printf "Device ID : 32\\nFirmware Revision : 1.74\\n";;\nesac\n'
    )
    program.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:/usr/bin:/bin")
    assert node.bmc() == {"address": "10.1.0.1", "mac": "0c:c4:7a:00:00:01", "firmware": "1.74"}
    program.write_text('#!/bin/sh\n[ "$1" = mc ] && echo "Firmware Revision : 1.74" || exit 1\n')
    assert node.bmc() == {"address": "", "mac": "", "firmware": "1.74"}
    program.write_text("#!/bin/sh\nexit 1\n")
    assert node.bmc() is None


@pytest.mark.parametrize(
    ("result", "status", "said"),
    [
        ({"errors": []}, {"stage": None}, {"status": "done", "errors": [], "recoverable": []}),
        ({"errors": ["no locale"]}, {"init": {"errors": ["no locale"]}}, {"status": "error", "errors": ["no locale"], "recoverable": []}),
        ({"errors": []}, {"init": {"recoverable_errors": {"WARNING": ["old key"]}}}, {"status": "done", "errors": [], "recoverable": ["WARNING: old key"]}),
        ({}, {}, {"status": "its files cannot be read: KeyError('errors')", "errors": [], "recoverable": []}),
    ],
)  # fmt: skip
def test_a_first_boot_says_how_cloud_init_ended(
    node: ModuleType, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, result: Any, status: Any, said: Any
) -> None:
    monkeypatch.setattr(node, "CLOUD_INIT", tmp_path)
    (tmp_path / "status.json").write_text(json.dumps({"v1": status}))
    (tmp_path / "result.json").write_text(json.dumps({"v1": result}))
    assert node.first_boot() == said


def test_a_first_boot_that_does_not_end_is_told_as_one(
    node: ModuleType, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(node, "CLOUD_INIT", tmp_path)
    monkeypatch.setattr(node, "FIRST_BOOT_S", -1)
    assert node.first_boot()["status"].startswith("not ended")


@pytest.mark.parametrize(("status", "ends", "kept"), [(200, 0, False), (410, 0, False), (0, 1, True), (503, 1, True)])
def test_the_token_of_a_first_boot_is_removed_once_it_was_told(
    node: ModuleType, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, status: int, ends: int, kept: bool
) -> None:
    monkeypatch.setattr(node, "FIRST_BOOT", tmp_path / "first-boot")
    (tmp_path / "first-boot").mkdir()
    sent = []
    monkeypatch.setattr(node, "first_boot", lambda: {"status": "done"})
    monkeypatch.setattr(node, "send", lambda *words: sent.append(words) or (status, ""))  # type: ignore[func-returns-value]
    assert node.tell_first_boot(EXPECTED) == ends
    assert sent[0][0] == "http://127.0.0.1:9/finished/n1/TOKEN"
    assert (tmp_path / "first-boot").exists() is kept


@pytest.mark.parametrize(
    ("status", "found", "ends", "told"),
    [
        (200, inventory(), 0, []),
        (409, inventory(), 1, ["the boot server answered 409: another disk"]),
        (0, inventory(), 1, ["the boot server answered nothing: another disk"]),
        (
            200,
            inventory(disks=[]),
            1,
            ["boot disk DISK-1: 0 disks", "boot disk DISK-2: 0 disks", "0 disks, expected 3"],
        ),
    ],
)
def test_nothing_is_wiped_unless_all_fits_and_the_server_said_so(
    node: ModuleType, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str],
    status: int, found: dict[str, Any], ends: int, told: list[str],
) -> None:  # fmt: skip
    sent = []
    monkeypatch.setattr(node, "inventory", lambda: found)
    monkeypatch.setattr(node, "send", lambda *words: sent.append(words) or (status, "another disk"))  # type: ignore[func-returns-value]
    assert node.tell_inventory(EXPECTED) == ends
    said = capsys.readouterr().err.splitlines()
    assert [
        line.partition("STOPPED before anything was wiped: ")[2][: len(want)]
        for line, want in zip(said, told, strict=True)
    ] == told
    assert sent[0][0] == "http://127.0.0.1:9/inventory/n1/TOKEN"
    assert json.loads(sent[0][1])["found"] == found


def test_a_server_that_does_not_answer_is_asked_again_and_then_is_none(node: ModuleType) -> None:
    status, said = node.send("http://127.0.0.1:9/x", b"", "text/plain")
    assert status == 0
    assert "refused" in said


def test_disks_of_the_machine_itself_are_told_and_no_others(node: ModuleType, monkeypatch: pytest.MonkeyPatch) -> None:
    devices = [
        ("sda", "disk", "sata"),
        ("nvme0n1", "disk", "nvme"),
        ("loop0", "loop", None),
        ("zram0", "disk", None),
        ("sdz", "disk", "usb"),
    ]
    monkeypatch.setattr(
        node, "lsblk", lambda: [dict(zip(("name", "type", "tran"), each, strict=True)) for each in devices]
    )
    found = node.inventory()
    json.dumps(found)
    assert [disk["name"] for disk in found["disks"]] == ["sda", "nvme0n1"]


def test_the_files_that_machines_fetch_are_those_of_the_fleet(tmp_path: Path) -> None:
    netboot = example().fleet.netboot
    assert netboot is not None
    faults = file_faults(tmp_path, netboot)
    assert [fault.found for fault in faults] == ["cannot be read: No such file or directory"] * 3
    (tmp_path / "files").mkdir()
    for role in (netboot.image, netboot.kernel, netboot.initrd):
        (tmp_path / "files" / role.name).write_bytes(b"x")
    assert all("fleet.yml says" in fault.found for fault in file_faults(tmp_path, netboot))
    right: dict[str, Any] = {
        role: BootFile(getattr(netboot, role).name, sha256(b"x")) for role in ("image", "kernel", "initrd")
    }
    assert file_faults(tmp_path, dataclasses.replace(netboot, live="live-boot", **right)) == []


def test_no_password_hash_and_no_token_of_the_seed_is_in_the_logs_that_are_sent(
    node: ModuleType, tmp_path: Path
) -> None:
    hashes = [
        "$6$rounds=5000$abcdefgh$0123456789./ABCxyz",
        "$y$j9T$F5Jx5fExrKuPp53xLKQ..1$X3DX6M94c7o.9agCG9G",
        "$2b$12$abcdefghijklmnopqrstuv",
    ]
    seed = "".join(f"password: '{each}'\n" for each in hashes) + "price: $100 $HOME ${x} http://boot/n1/TOKEN7\n"
    (tmp_path / "autoinstall-user-data").write_text(seed)
    with tarfile.open(fileobj=io.BytesIO(node.archive([str(tmp_path)], b"TOKEN7"))) as tar:
        (entry,) = tar.getmembers()
        said = tar.extractfile(entry).read().decode()  # type: ignore[union-attr]
        assert entry.size == len(said)
    assert said == "password: '(password hash, left out)'\n" * 3 + (
        "price: $100 $HOME ${x} http://boot/n1/(token, left out)\n"
    )
