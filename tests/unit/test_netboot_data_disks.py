"""Data disks: untouched unless a site asks, and then those that are named, and what a person is told before.

Write the golden anew, for a change that is meant: python tests/unit/test_netboot_data_disks.py; then read its diff as code.
"""

# ruff: noqa: E501  tables stand in one line

import json
import sys
import tempfile
from pathlib import Path
from types import ModuleType
from typing import Any

ROOT = Path(__file__).resolve().parents[2]
if __name__ == "__main__":
    sys.path.insert(0, str(ROOT / "tests"))

import jsonschema  # type: ignore[import-untyped]  # noqa: E402
import pytest  # noqa: E402
import yaml  # noqa: E402

from bedplate.act.arming import consequences, wiped  # noqa: E402
from bedplate.decide.autoinstall.lint import lint  # noqa: E402
from bedplate.decide.netboot import hardware  # noqa: E402
from bedplate.decide.netboot.recipe import Recipe  # noqa: E402
from bedplate.model.faults import BadInput  # noqa: E402
from bedplate.sources.site import open_site  # noqa: E402
from unit.netboot_sample import FLEET, OF_MODEL, recipe, write_example  # noqa: E402
from unit.programs import node_program  # noqa: E402
from unit.site_sample import replace_in  # noqa: E402

GOLDEN = Path(__file__).with_name("goldens") / "netboot/hgx-b200-data/user-data"
SCHEMAS = ROOT.parent / "shared" / "schemas"
ASKED = "gpu: {array: raid0, filesystem: xfs, path: /data, wipe: true}"
KEPT = ASKED.replace("true", "false")


def serials(name: str, many: int = 8) -> list[str]:
    return [f"EXNV{name[3:]}{letter}" for letter in "ABCDEFGH"[:many]]


def ask(root: Path, asked: str = ASKED, many: int = 8) -> Path:
    """Ask for the data disks of the GPU machines of a site, which have so many of them."""
    replace_in(root / "fleet.yml", "  addressing: static\n", f"  addressing: static\n  data_disks:\n    {asked}\n")
    header, *rows = (root / "nodes.csv").read_text().splitlines()
    rows = [f"{row},{' '.join(serials(row[:6], many)) if row.startswith('gpu') else ''}" for row in rows]
    (root / "nodes.csv").write_text("\n".join([f"{header},data_disk_serials", *rows]) + "\n")
    if many != 8:
        replace_in(root / "models/hgx-b200.yml", "data_disks: 8", f"data_disks: {many}")
    return root


def asking(folder: Path, asked: str = ASKED, many: int = 8) -> Recipe:
    return recipe(open_site(ask(write_example(folder / "site"), asked, many)))


def files(made: Recipe, name: str = "gpu001") -> dict[str, str]:
    return made.files(made.nodes([name])[0])


def section(made: Recipe, name: str = "gpu001") -> dict[str, Any]:
    data: dict[str, Any] = yaml.safe_load(files(made, name)["user-data"])["autoinstall"]
    return data


# --- rendering -------------------------------------------------------------------------------------------------


def test_a_node_whose_data_disks_are_asked_for_is_rendered_byte_for_byte(tmp_path: Path) -> None:
    assert files(asking(tmp_path))["user-data"] == GOLDEN.read_text()


def test_a_seed_without_the_asking_is_the_same_whatever_nodes_csv_says_of_data_disks(tmp_path: Path) -> None:
    """Kinds that are not asked for in a site that asks, too."""
    plain = recipe()
    listed = ask(write_example(tmp_path / "listed"))
    replace_in(listed / "fleet.yml", f"  data_disks:\n    {ASKED}\n", "")
    assert files(recipe(open_site(listed))) == files(plain)
    asked = asking(tmp_path / "other")
    for name in OF_MODEL.values():
        assert (files(asked, name) == files(plain, name)) is (name != "gpu001"), name
        assert ("data_disks" in asked.expected(asked.fleet.nodes[name])) is (name == "gpu001")


def test_data_disks_are_named_by_serial_striped_and_mounted_by_uuid_without_holding_up_a_start(tmp_path: Path) -> None:
    made = asking(tmp_path)
    actions = section(made)["storage"]["config"]
    disks = [action for action in actions if action["type"] == "disk"]
    assert [disk["match"] for disk in disks[2:]] == [{"serial": f"*{serial}*"} for serial in serials("gpu001")]
    assert all(disk["wipe"] == "superblock-recursive" and disk["preserve"] is False for disk in disks)
    raid = next(action for action in actions if action["id"] == "dataraid")
    assert (raid["raidlevel"], raid["devices"]) == ("raid0", [f"datapart{at}" for at in range(8)])
    made_, mount = (next(action for action in actions if action["id"] == name) for name in ("datafs0", "mount-data0"))
    assert (made_["volume"], made_["fstype"]) == ("dataraid", "xfs")
    assert (mount["path"], mount["options"], mount["spec"]) == ("/data", "defaults,nofail", f"UUID={made_['uuid']}")
    assert hardware.DATA_LABEL.fullmatch(made_["label"]), "a machine whose boot disks are mixed up with these stops"


def test_disks_without_an_array_have_a_file_system_each(tmp_path: Path) -> None:
    asked = "gpu: {array: none, filesystem: ext4, path: /var/lib/enroot, wipe: true}"
    for many, paths in ((1, ["/var/lib/enroot"]), (3, [f"/var/lib/enroot/{at}" for at in range(3)])):
        actions = section(asking(tmp_path / str(many), asked, many))["storage"]["config"]
        mounts = [action for action in actions if action["id"].startswith("mount-data")]
        assert [mount["path"] for mount in mounts] == paths
        assert len({mount["spec"] for mount in mounts}) == many
        formats = [action for action in actions if action["id"].startswith("datafs")]
        assert [each["volume"] for each in formats] == [f"datapart{at}" for at in range(many)]
        assert [action["id"] for action in actions if action["type"] == "raid"] == ["md0"]


def test_the_file_system_of_the_same_disks_has_one_uuid_however_they_are_listed_and_whatever_node_they_are_in(
    tmp_path: Path,
) -> None:
    def uuids(made: Recipe, name: str) -> list[str]:
        return [each["uuid"] for each in made.expected(made.fleet.nodes[name])["data_disks"]["volumes"]]

    made = asking(tmp_path)
    moved = ask(write_example(tmp_path / "moved"), KEPT)
    one, two = (" ".join(serials(name)) for name in ("gpu001", "gpu002"))
    text = (moved / "nodes.csv").read_text().replace(two, "@").replace(one, two)
    (moved / "nodes.csv").write_text(text.replace("@", " ".join(reversed(one.split()))))
    again = recipe(open_site(moved))
    assert uuids(made, "gpu001") == uuids(again, "gpu002")
    assert uuids(made, "gpu001") != uuids(made, "gpu002")


def test_data_that_is_kept_is_not_told_to_the_installer_and_looked_for_by_the_installed_system(tmp_path: Path) -> None:
    made, plain = asking(tmp_path, KEPT), recipe()
    kept = section(made)
    assert kept["storage"] == section(plain)["storage"]
    uuid = made.expected(made.fleet.nodes["gpu001"])["data_disks"]["volumes"][0]["uuid"]
    assert kept["late-commands"][-3] == [
        "sh",
        "-c",
        f"echo 'UUID={uuid} /data xfs defaults,nofail 0 2' >> /target/etc/fstab",
    ]
    assert [name for name in kept["packages"] if name not in section(plain)["packages"]] == ["mdadm", "xfsprogs"]
    for name in serials("gpu001"):
        assert name not in json.dumps(kept), "no action of the installer names a disk that is kept"


@pytest.mark.parametrize("asked", [ASKED, KEPT, ASKED.replace("raid0", "none"), KEPT.replace("xfs", "ext4").replace("raid0", "none")])  # fmt: skip
def test_every_asked_seed_passes_the_lint_and_the_upstream_schemas(tmp_path: Path, asked: str) -> None:
    texts = files(asking(tmp_path, asked))
    assert [str(each) for name, text in texts.items() for each in lint(text.encode(), name).findings] == []
    if SCHEMAS.is_dir():
        data = yaml.safe_load(texts["user-data"])
        jsonschema.validate(data.pop("autoinstall"), json.loads((SCHEMAS / "autoinstall-noble.json").read_text()))
        jsonschema.validate(data, json.loads((SCHEMAS / "cloud-config-v1.json").read_text()))


# --- what cannot be asked ----------------------------------------------------------------------------------------


def told(folder: Path, asked: str = ASKED, many: int = 8, *changes: tuple[str, str, str]) -> list[str]:
    """Every fault of a site that asks, with one thing changed in it."""
    root = ask(write_example(folder / "site"), asked, many)
    for file, old, new in changes:
        replace_in(root / file, old, new)
    with pytest.raises(BadInput) as caught:
        recipe(open_site(root)).nodes()
    return [str(fault) for fault in caught.value.faults]


LINE = FLEET.splitlines().index("  addressing: static") + 3
"""Of the asking in the fleet.yml of these tests."""
KEYS = [
    (ASKED.replace("raid0", "raid5"), ["netboot.data_disks.gpu.array: found \"raid5\" (one of: 'raid0' or 'none')"]),
    (ASKED.replace("xfs", "btrfs"), ["netboot.data_disks.gpu.filesystem: found \"btrfs\" (one of: 'ext4' or 'xfs')"]),
    (ASKED.replace("true", "sometimes"), ['netboot.data_disks.gpu.wipe: found "sometimes", wanted true or false']),
    ("gpu: {array: raid0, filesystem: xfs, path: /data}", ['netboot.data_disks.gpu: "wipe" is missing (add it)']),
    ("gpu: {}", [f'netboot.data_disks.gpu: "{key}" is missing (add it)' for key in ("array", "filesystem", "path", "wipe")]),
    (ASKED.replace("path", "mount"), ['netboot.data_disks.gpu: "path" is missing (add it)', 'netboot.data_disks.gpu: unknown key "mount" (known: array, filesystem, path, wipe)']),
    (ASKED.replace("gpu:", "gpus:"), ['netboot.data_disks.gpus: unknown kind "gpus" (did you mean "gpu"?)']),
    *((ASKED.replace("/data", path), [f'netboot.data_disks.gpu.path: found "{path}" (an absolute path: letters, digits and _ . -, for example /data)'])
      for path in ("data", "/", "/data/", "/data/../etc", "/da'ta", "/" + "x" * 200)),
    *((ASKED.replace("/data", path), [f'netboot.data_disks.gpu.path: "{path}" belongs to the system itself (a directory for data, for example /data)'])
      for path in ("/boot", "/usr/local", "/etc/x", "/var", "/var/lib", "/tmp")),
]  # fmt: skip


@pytest.mark.parametrize(("asked", "expected"), KEYS)
def test_what_cannot_be_asked_is_told_with_its_line(tmp_path: Path, asked: str, expected: list[str]) -> None:
    assert [line.rpartition(f"fleet.yml:{LINE}: ")[2] for line in told(tmp_path, asked)] == expected


def test_machines_that_cannot_have_what_is_asked_are_told_with_the_line_of_the_asking(tmp_path: Path) -> None:
    model = "models/hgx-b200.yml"
    place = f"fleet.yml:{LINE}: netboot.data_disks.gpu"
    (unknown,) = told(tmp_path / "unknown", ASKED, 8, (model, "data_disks: 8", "# data_disks: 8"))
    assert unknown.endswith(f"{place}: model hgx-b200 does not say how many data_disks it has: nobody could tell a missing one (add data_disks to models/hgx-b200.yml)")  # fmt: skip
    (none,) = told(tmp_path / "none", ASKED, 8, (model, "data_disks: 8", "data_disks: 0"))
    assert none.endswith(f"{place}: model hgx-b200 has no data disks (take it out, or correct the model)")
    (one,) = told(tmp_path / "one", ASKED, 1)
    assert one.endswith(f"{place}.array: raid0 of one disk: model hgx-b200 has 1 (array: none)")


def test_a_node_whose_list_is_not_as_long_as_its_models_is_told_with_its_line(tmp_path: Path) -> None:
    nodes = "nodes.csv"
    changes = ((nodes, "EXNV001A ", ""), (nodes, "EXNV002H", "EXNV002H EXNV002I"), (nodes, " ".join(serials("gpu003")), ""))  # fmt: skip
    lines = told(tmp_path, ASKED, 8, *changes)
    remedy = f"add their serial numbers, or take the asking out of {tmp_path}/site/fleet.yml"
    assert [line.rpartition("nodes.csv:")[2] for line in lines] == [
        "2: node gpu001 has 7 data_disk_serials, its model hgx-b200 has 8 data disks (correct one of the two)",
        "3: node gpu002 has 9 data_disk_serials, its model hgx-b200 has 8 data disks (correct one of the two)",
        f"4: node gpu003 has no data_disk_serials, netboot.data_disks.gpu asks for its data disks ({remedy})",
    ]


@pytest.mark.parametrize(
    ("old", "new", "expected"),
    [
        ("EXNV002A", "EXNV001A", "nodes.csv:3: disk EXNV001A stands there twice, first in line 2 (correct one of the two)"),
        ("EXNV001B", "EXNV001A", "nodes.csv:2: disk EXNV001A stands there twice, in this line (correct one of the two)"),
        ("EXNV001B", "EXM2A000001", "nodes.csv:2: disk EXM2A000001 stands there twice, in this line (correct one of the two)"),
        ("EXNV001B", "EXM2A000002", "nodes.csv:3: disk EXM2A000002 stands there twice, first in line 2 (correct one of the two)"),
        ("EXNV001B", "*", 'nodes.csv:2: data_disk_serials "*" is no serial number of a disk (as on the disk: 4 to 64 letters, digits and . _ -)'),
        ("data_disk_serials", "data_disk_serial", 'nodes.csv:1: unknown column "data_disk_serial" (did you mean "data_disk_serials"?)'),
        ("bond_macs,", "data_disk_serials,", 'nodes.csv:1: column "data_disk_serials" stands there twice (keep one)'),
    ],
)  # fmt: skip
def test_a_serial_that_is_none_or_of_two_disks_is_told_with_its_line(
    tmp_path: Path, old: str, new: str, expected: str
) -> None:
    assert {line.rpartition("site/")[2] for line in told(tmp_path, ASKED, 8, ("nodes.csv", old, new))} == {expected}


# --- what a machine is compared with -----------------------------------------------------------------------------


@pytest.fixture
def node() -> ModuleType:
    return node_program()


def expected(*, wipe: bool) -> dict[str, Any]:
    return {
        "node": "n1", "serial": "SN-1", "macs": [], "boot_disk_serials": ["BOOT-1"], "disks": None, "nic_macs": [],
        "bios_versions": [], "bmc_address": None, "url": "http://127.0.0.1:9", "path": "n1/TOKEN",
        "data_disks": {"serials": ["DATA-1", "DATA-2"], "wipe": wipe, "volumes": [{"uuid": "u-1", "path": "/data"}]},
    }  # fmt: skip


def machine(*data: dict[str, Any], **boot: Any) -> dict[str, Any]:
    disks = [
        {"name": "sda", "serial": "BOOT-1"} | boot,
        *({"name": f"nvme{at}n1"} | each for at, each in enumerate(data)),
    ]
    return {"dmi": {"product_serial": "SN-1"}, "disks": disks, "nics": []}


ONE, TWO = {"serial": "DATA-1"}, {"serial": "DATA-2"}
RAID = {"children": [{"name": "p1", "children": [{"name": "md1", "label": "data0"}]}]}
MOUNTED = {"children": [{"name": "p1", "mountpoint": "/mnt"}]}
CASES = [
    # the machine, what is told where data is wiped, what is told where it is kept
    (machine(ONE, TWO), [], []),
    (machine(ONE | RAID, TWO | RAID), [], []),
    (machine(ONE, {"serial": "OTHER"}), ["data disk DATA-2: 0 disks have that serial number (there: sda BOOT-1, nvme0n1 DATA-1, nvme1n1 OTHER)"], ["data disk DATA-2: 0 disks have that serial number (there: sda BOOT-1, nvme0n1 DATA-1, nvme1n1 OTHER)"]),
    (machine(ONE), ["data disk DATA-2: 0 disks have that serial number (there: sda BOOT-1, nvme0n1 DATA-1)"], ["data disk DATA-2: 0 disks have that serial number (there: sda BOOT-1, nvme0n1 DATA-1)"]),
    (machine(ONE, TWO, {"serial": "X_DATA-2"}), ["data disk DATA-2: 2 disks have that serial number (there: nvme1n1 DATA-2, nvme2n1 X_DATA-2)"], ["data disk DATA-2: 2 disks have that serial number (there: nvme1n1 DATA-2, nvme2n1 X_DATA-2)"]),
    (machine(ONE | MOUNTED, TWO), ["data disk DATA-1 is in use: p1 is mounted at /mnt"], []),
    (machine(ONE, TWO, label="data0"), ["boot disk BOOT-1 holds data: sda has the label 'data0' (correct boot_disk_serials, or wipe it by hand)"], ["boot disk BOOT-1 holds data: sda has the label 'data0' (correct boot_disk_serials, or wipe it by hand)"]),
    (machine(ONE, TWO, {"serial": "OTHER"} | RAID), ["disk OTHER, which nodes.csv does not name, holds data: md1 has the label 'data0' (correct data_disk_serials, or wipe it by hand)"], []),
    (machine(ONE, TWO, {"serial": None} | MOUNTED), ["disk nvme2n1, which nodes.csv does not name, is in use: p1 is mounted at /mnt"], []),
    (machine(ONE, TWO, {"serial": "OTHER"}), [], []),
]  # fmt: skip


@pytest.mark.parametrize(("found", "wiping", "keeping"), CASES)
def test_data_disks_are_compared_before_anything_is_wiped_and_only_named_ones_may_hold_data(
    node: ModuleType, found: dict[str, Any], wiping: list[str], keeping: list[str]
) -> None:
    for wipe, lines in ((True, wiping), (False, keeping)):
        assert hardware.differences(expected(wipe=wipe), found) == lines
        assert list(node.differences(expected(wipe=wipe), found)) == lines, "the machine stops by itself"


def test_a_data_disk_of_another_node_is_named_with_that_node() -> None:
    of_disk = {"DATA-1": "n1", "DATA-2": "n1", "DATA-9": "n2"}
    found = machine(ONE, {"serial": "DATA-9"})
    assert hardware.foreign("n1", found, {}, of_disk) == ["disk DATA-9 is of n2: a swapped disk"]


# --- what a first boot says of them ------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("wipe", "mounted", "there", "told"),
    [
        (True, True, True, []),
        (True, False, True, ["{} is not mounted: the file system u-1 is there (systemctl --failed says why)"]),
        (True, False, False, ["{} is not mounted: no file system u-1 (array and disks: lsblk -f)"]),
        (False, False, False, ["{} is not mounted: no file system u-1 (install once with wipe: true, which makes one)"]),
    ],
)  # fmt: skip
def test_a_first_boot_whose_data_disks_are_not_mounted_has_failed(
    node: ModuleType, monkeypatch: pytest.MonkeyPatch, tmp_path: Path,
    wipe: bool, mounted: bool, there: bool, told: list[str],
) -> None:  # fmt: skip
    path = Path("/proc") if mounted else tmp_path
    asked = expected(wipe=wipe)
    asked["data_disks"]["volumes"][0]["path"] = str(path)
    monkeypatch.setattr(node, "MOUNTS_S", -1)
    monkeypatch.setattr(node, "BY_UUID", tmp_path)
    monkeypatch.setattr(node, "FIRST_BOOT", tmp_path / "first-boot")
    monkeypatch.setattr(node, "first_boot", lambda: {"status": "done", "errors": [], "recoverable": []})
    sent = []
    monkeypatch.setattr(node, "send", lambda _, body, *__: sent.append(json.loads(body)) or (200, ""))  # type: ignore[func-returns-value]
    if there:
        (tmp_path / "u-1").touch()
    assert node.tell_first_boot(asked) == 0
    errors = [line.format(path) for line in told]
    assert sent == [{"status": "error" if told else "done", "errors": errors, "recoverable": []}]


def test_data_disks_that_are_mounted_a_little_later_are_waited_for(
    node: ModuleType, monkeypatch: pytest.MonkeyPatch
) -> None:
    looks = iter([False, False, True])
    monkeypatch.setattr(node.Path, "is_mount", lambda _: next(looks))
    monkeypatch.setattr(node.time, "sleep", lambda _: None)
    assert node.unmounted(expected(wipe=True)) == []
    assert next(looks, None) is None


# --- what a person is told ---------------------------------------------------------------------------------------


def inventory(folder: Path, disks: Any) -> None:
    (folder / "logs/n1").mkdir(parents=True, exist_ok=True)
    (folder / "logs/n1/inventory.json").write_text(json.dumps({"found": {"disks": disks}}))


SIZE = 3_840_755_982_336
KNOWN = [{"serial": "S_DATA-1", "size": SIZE}, {"serial": "DATA-2", "size": SIZE}, {"serial": "OTHER", "size": 1}]


@pytest.mark.parametrize(
    ("disks", "size"),
    [
        (KNOWN, "7,681,511,964,672 bytes"),
        (KNOWN[1:], "3,840,755,982,336 bytes on 1 of them, of the others unknown"),
        ([], "size unknown, no inventory of it here"),
        (None, "size unknown, no inventory of it here"),
        ([1, {"serial": "DATA-1", "size": "lots"}, {"serial": "DATA-2", "size": True}, {"serial": "DATA-2", "size": -1}], "size unknown, no inventory of it here"),
    ],
)  # fmt: skip
def test_arming_names_data_disks_that_go_and_how_much_is_on_them(tmp_path: Path, disks: Any, size: str) -> None:
    inventory(tmp_path, disks)
    assert list(consequences(tmp_path, "n1", expected(wipe=True))) == [
        "n1  serial SN-1  BOOT-1",
        f"  and 2 data disks, {size}: DATA-1 DATA-2",
    ]
    assert wiped(expected(wipe=True)) == ["BOOT-1", "DATA-1", "DATA-2"]


def test_arming_names_data_disks_that_are_kept_and_is_silent_of_those_that_nobody_asked_for(tmp_path: Path) -> None:
    kept = expected(wipe=False)
    assert list(consequences(tmp_path, "n1", kept)) == [
        "n1  serial SN-1  BOOT-1",
        "  2 data disks kept: DATA-1 DATA-2",
    ]
    assert wiped(kept) == ["BOOT-1"]
    del kept["data_disks"]
    assert list(consequences(tmp_path, "n1", kept)) == ["n1  serial SN-1  BOOT-1"]


def main() -> None:
    GOLDEN.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory() as folder:
        GOLDEN.write_text(files(asking(Path(folder)))["user-data"])


if __name__ == "__main__":
    main()
