"""What is rendered for an installation: the same bytes each time, and nothing that an installer reads otherwise."""

import json
import re
import shutil
import subprocess
from pathlib import Path
from typing import Any

import jsonschema  # type: ignore[import-untyped]
import pytest
import yaml
from click.testing import CliRunner

from bedplate.cli.netboot import netboot, refuse_faulty, render_netboot
from bedplate.decide.autoinstall.lint import lint
from bedplate.decide.check import check_site
from bedplate.decide.lockdoc import lock_text
from bedplate.decide.netboot.recipe import COMMON_FILES, NODE_FILES, TOKEN, Recipe, grub_names, quoted
from bedplate.ledger.store import Ledger
from bedplate.model.canonical import sha256
from bedplate.model.faults import BadInput, Refused
from bedplate.model.fleet import parse_fleet
from bedplate.model.netboot import Secrets
from bedplate.sources.site import Site, open_site
from unit.autoinstall_sample import HASH, KEY
from unit.lock_sample import digest, set_at
from unit.netboot_sample import (
    ARCHIVE_KEY,
    FLEET,
    KERNEL,
    NODES,
    OF_MODEL,
    ROOT,
    SECRETS,
    example,
    lock_document,
    locked,
    recipe,
    write_example,
)  # fmt: skip
from unit.site_sample import replace_in
from unit.test_netboot_data_disks import ask, serials

GOLDENS = Path(__file__).with_name("goldens") / "netboot"
SCHEMAS = ROOT.parent / "shared" / "schemas"


@pytest.fixture(scope="module")
def made() -> Recipe:
    return recipe()


def files(made: Recipe, name: str) -> dict[str, str]:
    return made.files(made.fleet.nodes[name])


def section(made: Recipe, name: str) -> dict[str, Any]:
    data: dict[str, Any] = yaml.safe_load(files(made, name)["user-data"])["autoinstall"]
    return data


def test_every_model_that_the_example_has_machines_of_has_a_golden() -> None:
    assert sorted(OF_MODEL) == sorted({kind.model for kind in example().fleet.kinds.values()})


@pytest.mark.parametrize(("model", "name"), OF_MODEL.items())
def test_a_node_of_each_model_is_rendered_byte_for_byte(made: Recipe, model: str, name: str) -> None:
    """Read a difference as code; then: python tests/unit/goldens/netboot.py"""
    assert made.fleet.kinds[made.fleet.nodes[name].kind].model == model
    written = {path.name: path.read_text() for path in (GOLDENS / model).iterdir()}
    assert files(made, name) == written


def test_the_files_of_the_boot_server_are_rendered_byte_for_byte(made: Recipe) -> None:
    common = made.common()
    hosts = [line for line in common["dnsmasq.conf"].splitlines() if line.startswith("dhcp-host=")]
    assert len(hosts) == 14
    common["dnsmasq.conf"] = "".join(
        f"{line}\n"
        for line in common["dnsmasq.conf"].splitlines()
        if not line.startswith("dhcp-host=") or re.search(r",(gpu001|cpu01|ctl1),", line)
    )
    written = {name: (GOLDENS / "common" / name.rpartition("/")[2]).read_text() for name in COMMON_FILES}
    assert common == written


def test_the_same_input_gives_the_same_bytes(made: Recipe) -> None:
    again = recipe()
    for name in OF_MODEL.values():
        assert files(made, name) == files(again, name)
    assert made.common() == again.common()


def test_every_rendered_file_of_every_kind_passes_the_lint(made: Recipe) -> None:
    for name in OF_MODEL.values():
        for file, text in files(made, name).items():
            assert [str(finding) for finding in lint(text.encode(), file).findings] == []


@pytest.mark.skipif(not SCHEMAS.is_dir(), reason="the upstream schemas are not beside this checkout")
def test_every_rendered_seed_passes_the_upstream_schemas(made: Recipe) -> None:
    installer, cloud, network = (
        json.loads((SCHEMAS / name).read_text())
        for name in ("autoinstall-noble.json", "cloud-config-v1.json", "network-config-v2.json")
    )
    for node in made.nodes(list(OF_MODEL.values())):
        data = yaml.safe_load(made.files(node)["user-data"])
        jsonschema.validate(data["autoinstall"], installer)
        jsonschema.validate({key: value for key, value in data.items() if key != "autoinstall"}, cloud)
        jsonschema.validate(data["autoinstall"]["user-data"], cloud)
        link = yaml.safe_load(made.files(node)["network-config"])
        jsonschema.validate({"network": link}, network)


def test_boot_disks_are_named_by_serial_and_no_other_disk_is_touched(made: Recipe) -> None:
    actions = section(made, "gpu001")["storage"]["config"]
    disks = [action for action in actions if action["type"] == "disk"]
    assert [disk["match"] for disk in disks] == [{"serial": "*EXM2A000001*"}, {"serial": "*EXM2B000001*"}]
    raid = next(action for action in actions if action["type"] == "raid")
    assert (raid["raidlevel"], raid["devices"]) == ("raid1", ["root0", "root1"])
    assert [action["id"] for action in actions if action.get("grub_device")] == ["esp0", "esp1"]


def test_one_disk_is_no_mirror_and_bios_boots_from_a_bios_partition(made: Recipe) -> None:
    actions = section(made, "cpu01")["storage"]["config"]
    assert {action["type"] for action in actions} == {"disk", "partition", "format", "mount"}
    assert [action["flag"] for action in actions if "flag" in action] == ["bios_grub"]
    assert [action["id"] for action in actions if action.get("grub_device")] == ["disk0"]


def test_ports_of_a_bond_keep_the_mac_that_boots(made: Recipe) -> None:
    network = section(made, "ctl1")["network"]
    assert [port["match"]["macaddress"] for port in network["ethernets"].values()] == [
        made.fleet.nodes["ctl1"].boot_mac,
        *made.fleet.nodes["ctl1"].bond_macs,
    ]
    bond = network["bonds"]["bond0"]
    assert (bond["interfaces"], bond["macaddress"]) == (["mgmt0", "mgmt1"], made.fleet.nodes["ctl1"].boot_mac)
    assert bond["addresses"] == ["10.20.0.11/21"]
    assert bond["parameters"]["mode"] == "802.3ad"


def test_addresses_by_dhcp_ask_as_the_firmware_did(tmp_path: Path) -> None:
    write_example(tmp_path / "site")
    replace_in(tmp_path / "site/fleet.yml", "addressing: static", "addressing: dhcp")
    made = recipe(open_site(tmp_path / "site"))
    link = section(made, "gpu001")["network"]["ethernets"]["mgmt0"]
    assert (link["dhcp4"], link["dhcp-identifier"], "addresses" in link) == (True, "mac", False)
    assert [str(each) for each in lint(files(made, "gpu001")["user-data"].encode(), "user-data").findings] == []


def test_the_kernel_is_the_one_of_the_lock_and_the_archive_is_the_only_source(made: Recipe) -> None:
    data = section(made, "gpu001")
    assert data["kernel"] == {"package": f"linux-image-{KERNEL}-generic"}
    assert data["packages"] == [f"linux-modules-{KERNEL}-generic", f"linux-modules-extra-{KERNEL}-generic", "python3"]
    pins = {each["package"]: each["pin"] for each in data["apt"]["preferences"]}
    assert pins[f"linux-image-{KERNEL}-generic"] == f"version {KERNEL}.138"
    assert "libnuma1" not in pins
    assert (data["apt"]["fallback"], data["apt"]["geoip"]) == ("abort", False)
    assert data["apt"]["mirror-selection"]["primary"] == [{"uri": "http://archive.lab:8080/"}]
    source = data["apt"]["sources_list"]
    assert "URIs: http://archive.lab:8080/\nSuites: a\nComponents: main\nSigned-By:\n -----BEGIN" in source
    assert "ubuntu.com" not in files(made, "gpu001")["user-data"]


def test_a_seed_holds_hashes_and_public_keys_and_the_place_of_a_token(made: Recipe) -> None:
    text = "".join(files(made, "gpu001").values())
    assert HASH in text
    assert KEY in text
    assert "PRIVATE" not in text
    places = re.findall(r"http://[0-9.:]+/(?:seed|report|phone)/[^\s'\"]*", text)
    assert len(places) == 4
    assert all(f"/gpu001/{TOKEN}" in place for place in places)


def test_loaders_are_signed_where_secure_boot_may_be_on(made: Recipe) -> None:
    assert "(tftp,10.20.0.34)/files" in files(made, "ctl1")["install.grub"]
    assert "insmod http" in files(made, "gpu001")["install.grub"]
    hosts = {line.split(",")[-2]: line for line in made.common()["dnsmasq.conf"].splitlines() if "dhcp-host" in line}
    assert ",set:shim," in hosts["ctl1"]
    assert ",set:shim," not in hosts["gpu001"]
    assert ",set:shim," not in hosts["cpu01"]


def test_no_two_answers_of_the_dhcp_server_fit_one_firmware(made: Recipe) -> None:
    rules = [
        re.findall(r"tag:(!?\w+)", line)
        for line in made.common()["dnsmasq.conf"].splitlines()
        if line.startswith("dhcp-boot")
    ]
    for arch in ("bios", "efi", "efihttp"):
        for more in ([], ["shim"], ["ipxe"], ["shim", "ipxe"]):
            tags = {arch, *more}
            fits = [
                rule
                for rule in rules
                if all((word[1:] not in tags) if word[0] == "!" else (word in tags) for word in rule)
            ]
            assert len(fits) == 1, tags


def test_dnsmasq_takes_its_configuration(made: Recipe, tmp_path: Path) -> None:
    program = shutil.which("dnsmasq") or shutil.which("dnsmasq", path="/usr/sbin")
    if program is None:
        pytest.skip("no dnsmasq here")
    path = tmp_path / "dnsmasq.conf"
    text = made.common()["dnsmasq.conf"].replace("/var/lib/bedplate/netboot/tftp", str(tmp_path))
    path.write_text(text)
    done = subprocess.run([program, "--test", "-C", path], stderr=subprocess.PIPE, text=True, check=False)
    assert done.returncode == 0, done.stderr


def test_grub_can_read_its_scripts() -> None:
    program = shutil.which("grub-script-check")
    if program is None:
        pytest.skip("no grub-script-check here")
    for path in [*GOLDENS.glob("*/install.grub"), GOLDENS / "common/grub.cfg"]:
        subprocess.run([program, path], check=True)


def test_another_environment_is_another_instance_for_cloud_init(made: Recipe) -> None:
    other = recipe(lock=locked(set_at(lock_document(), "environment", "A") | {"spec_sha256": digest("e")}))
    ids = {yaml.safe_load(files(each, "gpu001")["meta-data"])["instance-id"] for each in (made, other)}
    assert len(ids) == 2


def test_a_live_system_of_debian_is_fetched_as_its_initrd_wants_it(tmp_path: Path) -> None:
    write_example(tmp_path / "site")
    replace_in(tmp_path / "site/fleet.yml", "  addressing: static\n", "  addressing: static\n  live: live-boot\n")
    replace_in(tmp_path / "site/fleet.yml", "ubuntu-24.04.5-live-server-amd64.iso", "root.squashfs")
    texts = files(recipe(open_site(tmp_path / "site")), "ctl1")
    assert " boot=live fetch=http://10.20.0.34:8080/files/root.squashfs ip=dhcp " in texts["install.grub"]
    for name in ("install.grub", "install.ipxe"):
        assert lint(texts[name].encode(), name).findings == ()


def test_an_ordinary_login_gets_sudo_and_root_none(tmp_path: Path) -> None:
    write_example(tmp_path / "site")
    replace_in(tmp_path / "site/fleet.yml", "  user: root\n", "  user: ops\n")
    text = files(recipe(open_site(tmp_path / "site")), "gpu001")["user-data"]
    assert lint(text.encode(), "user-data").findings == ()
    installed = yaml.safe_load(text)["autoinstall"]["user-data"]
    assert installed["write_files"][0]["content"] == "ops ALL=(ALL) NOPASSWD:ALL\n"
    assert "disable_root" not in installed


def test_grub_looks_a_machine_up_by_serial_where_that_can_be_a_name_and_by_each_mac(made: Recipe) -> None:
    node = made.fleet.nodes["ctl1"]
    assert grub_names(node) == ["EXAMPLE-000669.cfg", f"{node.boot_mac}.cfg", f"{node.bond_macs[0]}.cfg"]
    _, _, _, serial, *_ = ["a", "b", "c", "d/e"]
    assert grub_names(_with_serial(made, serial))[0] == f"{node.boot_mac}.cfg"


def _with_serial(made: Recipe, serial: str) -> Any:
    from dataclasses import replace  # noqa: PLC0415

    return replace(made.fleet.nodes["ctl1"], serial=serial)


@pytest.mark.parametrize("text", ["a", "it's", "$6$x", "a: b # c", "- x", "ü", "a\nb", "", "{{ x }}", '"'])
def test_a_quoted_text_is_read_as_it_was(text: str) -> None:
    assert yaml.safe_load(f"key: {quoted(text)}") == {"key": text}


# --- what cannot be installed ----------------------------------------------------------------------------


def refused(site: Site | None = None, **changed: Any) -> list[str]:
    with pytest.raises(BadInput) as caught:
        recipe(site, **changed).nodes()
    return [str(fault) for fault in caught.value.faults]


def test_a_node_without_the_serials_of_its_boot_disks_is_not_rendered(tmp_path: Path) -> None:
    write_example(tmp_path / "site")
    replace_in(tmp_path / "site/nodes.csv", "EXM2A000001 EXM2B000001", "")
    replace_in(tmp_path / "site/nodes.csv", "EXM2A000002 EXM2B000002", "EXM2A000002")
    told = refused(open_site(tmp_path / "site"))
    assert len(told) == 2
    assert "nodes.csv:2: node gpu001 has no boot_disk_serials: no disk of it may be wiped" in told[0]
    assert "nodes.csv:3: node gpu002 has 1 boot_disk_serials, its model hgx-b200 has 2 boot disks" in told[1]


def test_an_environment_without_one_kernel_is_not_installed() -> None:
    document = set_at(lock_document(), "layers/kernel", {"unmanaged": "later"})
    for kind in document["packages"].values():
        for package in kind.values():
            package["layer"] = "os" if package["layer"] == "kernel" else package["layer"]
    assert "the kernel layer is unmanaged (later)" in refused(lock=locked(document))[0]
    document = set_at(lock_document(), f"packages/gpu/linux-image-{KERNEL}-generic", ...)
    assert "kind gpu asks for 0 kernels" in refused(lock=locked(document))[0]


def test_another_key_than_the_locks_is_refused() -> None:
    with pytest.raises(Refused, match="the archive's key is"):
        recipe(key=ARCHIVE_KEY + b"\n")


def test_what_is_no_hash_and_no_key_is_told_without_being_said() -> None:
    told = refused(secrets=Secrets("hunter2", ("ssh-ed25519 AAAA",)))
    assert [line.split(": ")[1] for line in told] == ["netboot_authorized_keys[0]", "netboot_password_hash"]
    assert "hunter2" not in "".join(told)


def test_a_site_without_a_netboot_section_says_so(tmp_path: Path) -> None:
    write_example(tmp_path / "site")
    path = tmp_path / "site/fleet.yml"
    text = path.read_text()
    start = text.index("netboot:")
    path.write_text(text[:start] + text[text.index("\n# Four air") :])
    assert "no netboot section" in refused(open_site(tmp_path / "site"))[0]


def test_a_flat_archive_and_another_login_are_told() -> None:
    document = set_at(lock_document(), "archive/components", [])
    assert "a flat archive" in refused(lock=locked(document))[0]


def test_nodes_that_the_environment_is_not_for_are_told() -> None:
    with pytest.raises(BadInput, match="node svc1 is of kind services, the lock is for"):
        recipe().nodes(["svc1", "gpu001"])


# --- the fleet's part ----------------------------------------------------------------------------------------

FLEET_FAULTS = [
    (FLEET, "server: 10.20.0.34", "server: 10.99.0.34", "netboot.server: 10.99.0.34 is outside 10.20.0.0/21"),
    (FLEET, "gateway: 10.20.0.1", "gateway: 10.20.1.1", "gateway: 10.20.1.1 is a node's address"),
    (FLEET, "gateway: 10.20.0.1", "gateway: 10.30.1.1", "gateway: 10.30.1.1 is outside"),
    (FLEET, "    dns: [10.20.0.31, 10.20.0.32]\n", "", "static addresses without networks.management.dns"),
    (FLEET, "name: vmlinuz-24.04.5", "name: ../vmlinuz", 'netboot.kernel.name: found "../vmlinuz"'),
    (FLEET, "sha256:1111", "sha256:zz11", "netboot.kernel.sha256: found"),
    (FLEET, "console=tty0,", '"a;b",', 'netboot.command_line[0]: found "a;b"'),
    (FLEET, "  interface: bond0\n", "", '"interface" is missing'),
    (FLEET, "  interface: bond0\n", "  interface: bond0\n  adressing: dhcp\n", 'unknown key "adressing"'),
    (FLEET, "bond: 802.3ad}", "bond: lacp}", "kinds.controller.bond: found"),
    (FLEET, ", bond: 802.3ad}", "}", "node ctl1 has bond_macs, kind controller says no bond"),
    (NODES, ",EXM2A000001 EXM2B000001", ",EXM2A000001 EXM2A000001", "disk EXM2A000001 stands there twice"),
    (NODES, ",EXM2A000001 EXM2B000001", ",EXM2A000002 EXM2B000001", "disk EXM2A000002 stands there twice"),
    (NODES, ",EXM2A000001 EXM2B000001", ",EX* EXM2B000001", 'boot_disk_serials "EX*" is no serial number of a disk'),
    (NODES, "bond_macs,boot_disk_serials", "bond_macs,boot_disk_serial", 'unknown column "boot_disk_serial"'),
]  # fmt: skip


@pytest.mark.parametrize(("text", "old", "new", "part"), FLEET_FAULTS)
def test_a_fault_of_the_fleets_netboot_is_told(text: str, old: str, new: str, part: str) -> None:
    assert old in text
    changed = text.replace(old, new, 1)
    fleet, nodes = (changed, NODES) if text is FLEET else (FLEET, changed)
    with pytest.raises(BadInput) as caught:
        parse_fleet(fleet, nodes)
    assert any(part in str(fault) for fault in caught.value.faults), caught.value


def test_check_compares_boot_disks_with_the_model(tmp_path: Path) -> None:
    write_example(tmp_path / "site")
    replace_in(tmp_path / "site/nodes.csv", "EXM2A000001 EXM2B000001", "EXM2A000001")
    contents, faults = open_site(tmp_path / "site").contents()
    told = [str(fault) for fault in [*faults, *check_site(contents, online=False)]]
    assert any("node gpu001 has 1 boot_disk_serials, its model hgx-b200 2 boot disks" in line for line in told), told


def test_a_node_of_a_bonded_kind_without_other_ports_is_told() -> None:
    mac = parse_fleet(FLEET, NODES).nodes["ctl1"].bond_macs[0]
    with pytest.raises(
        BadInput, match=r"node ctl1 has no bond_macs, the ports of kind controller are a bond \(802.3ad\)"
    ):
        parse_fleet(FLEET, NODES.replace(mac, "", 1))


# --- the command -----------------------------------------------------------------------------------------------


@pytest.fixture
def site(tmp_path: Path) -> Path:
    """The example with a lock, its key and a vault."""
    root = tmp_path / "site"
    write_example(root)
    text = (root / "environments/2026.11-a.yml").read_text().replace("environment: 2026.11-a", "environment: A")
    (root / "environments/A.yml").write_text(text)
    (root / "environments/A.lock.json").write_text(lock_text(lock_document()))
    (root / "keys").mkdir(exist_ok=True)
    (root / "keys/archive.asc").write_bytes(ARCHIVE_KEY)
    (tmp_path / "password").write_text("open\n")
    (root / "vault.yml").write_text(f"netboot_password_hash: '{HASH}'\nnetboot_authorized_keys: ['{KEY}']\nother: x\n")
    ansible_vault("encrypt", root / "vault.yml", tmp_path / "password")
    return root


def ansible_vault(verb: str, path: Path, password: Path) -> None:
    subprocess.run(
        [ROOT / ".venv/bin/ansible-vault", verb, "--vault-password-file", password, path],
        check=True, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
    )  # fmt: skip


def run(site: Path, *words: str | Path) -> Any:
    password = site.parent / "password"
    return CliRunner().invoke(
        render_netboot, ["A", "--vault-password-file", str(password), *map(str, words)], obj=site, standalone_mode=False
    )


@pytest.mark.slow
def test_the_command_writes_what_the_recipe_says_and_nothing_half(site: Path, tmp_path: Path) -> None:
    out = tmp_path / "out"
    done = run(site, "--nodes", "gpu[001-002]", "--out", out, "--json")
    assert done.exception is None, done.output
    said = json.loads(done.output)
    written = {path.relative_to(out).as_posix() for path in out.rglob("*") if path.is_file()}
    assert written == {
        *COMMON_FILES,
        "manifest.json",
        *(f"nodes/gpu00{n}/{name}" for n in (1, 2) for name in NODE_FILES),
    }
    for name, digest_ in said["files"].items():
        assert sha256((out / name).read_bytes()) == digest_
        assert (out / name).stat().st_mode & 0o777 == 0o600
    assert (out / "nodes/gpu001/user-data").read_text() == files(recipe(), "gpu001")["user-data"]
    assert set(said["index"]["nodes"]) == {"gpu001", "gpu002"}
    assert run(site, "--nodes", "gpu001", "--out", out).exception is None
    assert not (out / "nodes/gpu002").exists()
    assert [path.name for path in tmp_path.iterdir() if path.name.startswith(".")] == []


FILES = ("ubuntu-24.04.5-live-server-amd64.iso", "vmlinuz-24.04.5", "initrd-24.04.5")


def no_example(site: Path) -> None:
    """Make a site one that may be armed, with boot files of one byte."""
    replace_in(site / "fleet.yml", "example: true", "example: false")
    text = (site / "fleet.yml").read_text()
    text = text.replace("  addressing: static\n", "  addressing: static\n  live: live-boot\n")
    (site / "fleet.yml").write_text(re.sub(r"sha256:[0-9a-f]{64}", sha256(b"x"), text))


@pytest.mark.slow
def test_arm_names_data_disks_that_will_be_wiped_in_its_question_and_in_the_ledger(site: Path, tmp_path: Path) -> None:
    no_example(ask(site))
    folder = tmp_path / "netboot"
    (folder / "files").mkdir(parents=True)
    for name in FILES:
        (folder / "files" / name).write_bytes(b"x")
    (folder / "logs/gpu001").mkdir(parents=True)
    disks = [{"serial": serial, "size": 1000} for serial in serials("gpu001")]
    (folder / "logs/gpu001/inventory.json").write_text(json.dumps({"found": {"disks": disks}}))
    words = ["arm", "A", "--nodes", "gpu[001-002]", "--approved-by", "Ann Lee", "--dir", str(folder)]
    words += ["--vault-password-file", str(site.parent / "password")]
    done = CliRunner().invoke(netboot, words, obj=site, standalone_mode=False, input="y\n")
    assert done.exception is None, done.exception
    one, two = serials("gpu001"), serials("gpu002")
    assert "  gpu001  serial EXAMPLE-000001  EXM2A000001 EXM2B000001\n" in done.output
    assert f"    and 8 data disks, 8,000 bytes: {' '.join(one)}\n" in done.output
    assert f"    and 8 data disks, size unknown, no inventory of it here: {' '.join(two)}\n" in done.output
    assert "Wipe the boot disks of 2 nodes, and 16 data disks? [y/N]" in done.output
    with Ledger.read(open_site(site).ledger_url) as ledger:
        events = list(ledger.events(kinds=["netboot.armed"]))
    assert [event.body["wipes"] for event in events] == [
        ["EXM2A000001", "EXM2B000001", *one],
        ["EXM2A000002", "EXM2B000002", *two],
    ]


@pytest.mark.slow
def test_arm_names_what_will_be_wiped_asks_and_then_arms(site: Path, tmp_path: Path) -> None:
    no_example(site)
    folder = tmp_path / "netboot"
    words = ["arm", "A", "--nodes", "gpu[001-002]", "--approved-by", "Ann Lee", "--dir", str(folder)]
    words += ["--vault-password-file", str(site.parent / "password")]

    def armed(answer: str) -> Any:
        return CliRunner().invoke(netboot, words, obj=site, standalone_mode=False, input=answer)

    missing = armed("y\n")
    assert isinstance(missing.exception, BadInput)
    assert len(missing.exception.faults) == 3
    (folder / "files").mkdir(parents=True)
    for name in FILES:
        (folder / "files" / name).write_bytes(b"x")
    refused_ = armed("n\n")
    assert "gpu001  serial EXAMPLE-000001  EXM2A000001 EXM2B000001" in refused_.output
    assert "Wipe the boot disks of 2 nodes? [y/N]" in refused_.output
    assert "data disk" not in refused_.output
    assert not (folder / "armed").exists()
    done = armed("y\n")
    assert done.exception is None, done.exception
    assert "armed until" in done.output
    with Ledger.read(open_site(site).ledger_url) as ledger:
        events = list(ledger.events(kinds=["netboot.armed"]))
    assert [event.subjects[0] for event in events] == ["node:gpu001", "node:gpu002"]
    assert (events[0].body["approved_by"], events[0].body["wipes"]) == ("Ann Lee", ["EXM2A000001", "EXM2B000001"])
    seed = (folder / "armed/gpu001/user-data").read_text()
    assert TOKEN not in seed
    assert lint(seed.encode(), "user-data").findings == ()


def test_a_directory_of_somebody_else_is_left_alone(site: Path, tmp_path: Path) -> None:
    (tmp_path / "out").mkdir()
    (tmp_path / "out/thesis.tex").write_text("x")
    done = run(site, "--nodes", "gpu001", "--out", tmp_path / "out")
    assert isinstance(done.exception, Refused)
    assert (tmp_path / "out/thesis.tex").read_text() == "x"


def test_what_is_wrong_with_vault_key_and_nodes_is_told_at_once(site: Path) -> None:
    (site / "vault.yml").unlink()
    fault = run(site, "--nodes", "gpu001,svc1").exception
    assert isinstance(fault, BadInput)
    assert [Path(each.file).name for each in fault.faults] == ["nodes.csv", "vault.yml"], str(fault)
    (site / "keys/archive.asc").unlink()
    fault = run(site).exception
    assert isinstance(fault, BadInput)
    assert [Path(each.file).name for each in fault.faults] == ["archive.asc", "vault.yml"], str(fault)


@pytest.mark.slow
def test_a_vault_that_is_not_encrypted_or_not_opened_is_bad_input(site: Path) -> None:
    (site.parent / "password").write_text("wrong\n")
    done = run(site)
    assert isinstance(done.exception, BadInput)
    assert "cannot be decrypted" in str(done.exception)
    (site / "vault.yml").write_text("netboot_password_hash: x\n")
    assert "not encrypted" in str(run(site).exception)
    (site / "vault.yml").unlink()
    assert "ansible-vault create" in str(run(site).exception)


@pytest.mark.slow
def test_a_vault_without_the_keys_of_a_seed_is_bad_input(site: Path) -> None:
    (site / "vault.yml").write_text("netboot_password_hash: 12\n")
    ansible_vault("encrypt", site / "vault.yml", site.parent / "password")
    told = run(site).exception
    assert isinstance(told, BadInput)
    assert [fault.found.partition(":")[0] for fault in told.faults] == [
        "netboot_authorized_keys",
        "netboot_password_hash",
    ]


def test_a_template_that_somebody_changed_for_the_worse_is_not_written() -> None:
    good = {"nodes/n1/user-data": b"#cloud-config\nautoinstall: {version: 1, storage: {layout: {name: lvm}}}\n"}
    with pytest.raises(BadInput, match="storage-by-size"):
        refuse_faulty(good)


def test_the_sample_is_what_it_seems() -> None:
    assert SECRETS.password_hash == HASH
    assert digest("a") in json.dumps(lock_document())
