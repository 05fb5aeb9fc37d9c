"""`bedplate check`: the files of a whole site."""

# ruff: noqa: E501  messages stand as they are printed

import json
import time
from collections.abc import Callable
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from bedplate.act import lock as locks
from bedplate.cli.main import bedplate
from bedplate.decide.check import check_site
from bedplate.decide.lockdoc import lock_text
from bedplate.model.canonical import sha256
from bedplate.model.environment import parse_environment
from bedplate.model.faults import BadInput, Fault, Refused
from bedplate.sources.site import Site, open_site
from unit.lock_sample import digest, document
from unit.site_sample import ENVIRONMENT, replace_in, write_site

EXAMPLE = Path(__file__).parents[2] / "inventory"


@pytest.fixture
def site(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A site without a fault, in the folder "site" of the working directory."""
    monkeypatch.chdir(tmp_path)
    return write_site(tmp_path / "site")


def lock(site: Path, **changes: object) -> Path:
    """Lock environment A as it stands."""
    made = document()
    made["spec_sha256"] = parse_environment(ENVIRONMENT, "A.yml").spec_sha256
    made["archive"]["key_sha256"] = sha256(b"a key\n")
    path = site / "environments/A.lock.json"
    path.write_text(lock_text(made | changes))
    return path


def run(site: Path, *words: str) -> Result:
    return CliRunner().invoke(bedplate, ["--site", str(site), "check", *words])


def faults(site: Path) -> list[str]:
    contents, found = open_site(site).contents()
    return [str(fault) for fault in BadInput([*found, *check_site(contents)]).faults]


def rename(site: Path, old: str, new: str) -> None:
    (site / old).rename(site / new)


def write_bytes(path: Path, data: bytes) -> None:
    path.write_bytes(data)


def change(name: str, old: str, new: str) -> Callable[[Path], None]:
    return lambda site: replace_in(site / name, old, new)


def move(old: str, new: str) -> Callable[[Path], None]:
    return lambda site: rename(site, old, new)


def test_a_good_site_has_no_fault(site: Path) -> None:
    assert faults(site) == []


CASES: list[tuple[Callable[[Path], None], list[str]]] = [
    (move("models/lab-gpu8.yml", "models/old.txt"), [
        'site/environments/A.yml:10: layers.hardware.models: no models/lab-gpu8.yml for the model "lab-gpu8" (known: lab-controller)',
        'site/fleet.yml:13: kinds.gpu.model: no models/lab-gpu8.yml for the model "lab-gpu8" (known: lab-controller)',
    ]),
    (move("models/lab-gpu8.yml", "models/lab-gpu9.yml"), [
        'site/environments/A.yml:10: layers.hardware.models: no models/lab-gpu8.yml for the model "lab-gpu8" (did you mean "lab-gpu9"?)',
        'site/fleet.yml:13: kinds.gpu.model: no models/lab-gpu8.yml for the model "lab-gpu8" (did you mean "lab-gpu9"?)',
        'site/models/lab-gpu9.yml:1: model: "lab-gpu8" in a file named lab-gpu9.yml (rename one of the two)',
    ]),
    (change("nodes.csv", " 02:00:00:00:02:02", ""), [
        "site/nodes.csv:4: node n2 has 1 nic_macs, its model lab-gpu8 has 2 (list all of them, or correct the model)",
    ]),
    # gres Type must be a part of the detected name; the rules tell Blackwell by it
    (change("models/lab-gpu8.yml", "gpu_product: NVIDIA B200\n", "gpu_product: NVIDIA B200\ngpu_type: h100\n"), [
        'site/models/lab-gpu8.yml: gpu_type: "h100" is no part of "NVIDIA B200" (correct one of the two)',
    ]),
    (change("models/lab-gpu8.yml", "gpu_product: NVIDIA B200\n", "gpu_product: NVIDIA H100 80GB HBM3\ngpu_type: h100_80gb\n"), []),
    (change("environments/A.yml", "kinds: [gpu]", "kinds: [gpus]"), [
        'site/environments/A.yml:3: kinds: unknown kind "gpus" (did you mean "gpu"?)',
    ]),
    (change("environments/A.yml", "kinds: [gpu]", "kinds: [gpu, controller]"), [
        'site/environments/A.yml:10: layers.hardware.models: nodes of kind controller are of model "lab-controller", which is not listed (add it, or take the kind out)',
    ]),
    (change("environments/A.yml", "images/a", "images/b"), [
        'site/environments/A.yml:23: layers.image.definition: no images/b/image.yml (did you mean "images/a"?)',
    ]),
    (move("images/a/Dockerfile", "images/a/Containerfile"), [
        "site/images/a/image.yml: dockerfile: no images/a/Dockerfile (write it, or correct dockerfile)",
    ]),
    (move("environments/A.yml", "environments/B.yml"), [
        'site/environments/B.yml:1: environment: "A" in a file named B.yml (rename one of the two)',
    ]),
    (move("nodes.csv", "nodes.txt"), [
        "site/nodes.csv: no such file (write it: docs/site.md has its columns and keys)",
    ]),
    (lambda site: write_bytes(site / "fleet.yml", b"plugin: bedplate\nsite: \xff\n"), [
        "site/fleet.yml:2: byte 0xff is not UTF-8 (save the file as UTF-8)",
    ]),
]  # fmt: skip


@pytest.mark.parametrize(("plant", "expected"), CASES, ids=range(len(CASES)))
def test_what_the_files_of_a_site_disagree_on_is_told(
    site: Path, plant: Callable[[Path], None], expected: list[str]
) -> None:
    plant(site)
    assert faults(site) == expected


def test_two_definitions_never_share_a_name(site: Path) -> None:
    (site / "images/b").mkdir()
    for name in ("image.yml", "Dockerfile"):
        (site / "images/b" / name).write_text((site / "images/a" / name).read_text())
    assert faults(site) == [
        'site/images/b/image.yml: name: "lab-small" is also the name in images/a/image.yml (name each definition by itself)'
    ]


def test_a_file_that_cannot_be_read_brings_no_faults_of_others(site: Path) -> None:
    replace_in(site / "models/lab-gpu8.yml", "nics: 2", "nics: two")
    replace_in(site / "images/a/image.yml", "name:", "nmae:")
    assert [line.split(":")[0] for line in faults(site)] == ["site/images/a/image.yml", "site/models/lab-gpu8.yml"]


# --- locks ---


def test_a_lock_of_the_file_as_it_stands_is_good(site: Path) -> None:
    lock(site)
    assert faults(site) == []


def test_an_environment_that_changed_since_it_was_locked_is_a_fault(site: Path) -> None:
    lock(site)
    replace_in(site / "environments/A.yml", "WARN", "INFO")
    assert faults(site) == [
        (
            "site/environments/A.yml:1: environment A changed since it was locked"
            " (undo the change, or make it an environment with a name of its own: a lock is never edited)"
        )
    ]


def test_a_change_of_words_and_policy_leaves_the_lock_good(site: Path) -> None:
    lock(site)
    replace_in(site / "environments/A.yml", "Driver 570", "Another driver")
    replace_in(site / "environments/A.yml", "batch: 4", "batch: 8")
    assert faults(site) == []


def test_a_lock_without_its_environment_is_a_fault(site: Path) -> None:
    lock(site)
    (site / "environments/A.yml").unlink()
    assert faults(site) == [
        "site/environments/A.lock.json: a lock without environments/A.yml (bring that file back from version control)"
    ]


def test_a_lock_for_other_hardware_than_the_fleet_has_is_a_fault(site: Path) -> None:
    lock(site, kinds={"gpu": {"model": "lab-gpu4", "architecture": "amd64"}})
    assert faults(site) == [
        (
            "site/environments/A.lock.json: kinds.gpu: locked for lab-gpu4 (amd64), in the fleet it is lab-gpu8 (amd64)"
            " (an environment for other hardware needs a name of its own)"
        )
    ]


def test_an_edited_lock_is_a_fault(site: Path) -> None:
    replace_in(lock(site), '"size": 1000', '"size": 1000.5')
    assert faults(site)[0].startswith("site/environments/A.lock.json")


def test_a_locked_environment_needs_the_key_that_it_was_locked_with(site: Path) -> None:
    lock(site)
    (site / "keys/archive.asc").write_text("another key\n")
    assert faults(site) == [
        (
            "site/environments/A.yml:8: archive.key: keys/archive.asc is not the key that the lock was made with"
            " (put the old key back, or lock a new environment)"
        )
    ]
    (site / "keys/archive.asc").unlink()
    assert faults(site) == [
        (
            "site/environments/A.yml:8: archive.key: no keys/archive.asc, the key that signs http://archive.lab:8080/"
            " (put the archive's public key there)"
        )
    ]


def test_an_environment_may_be_written_before_its_key_is_there(site: Path) -> None:
    (site / "keys/archive.asc").unlink()
    assert faults(site) == []
    contents, _ = open_site(site).contents()
    assert len(check_site(contents, online=True)) == 1


# --- the command ---


def test_what_only_others_know_is_not_asked_and_that_is_said(site: Path) -> None:
    result = run(site)
    assert result.exit_code == 0
    assert "A: packages in the archive, image in the registry: not asked (bedplate check --online)" in result.output
    assert "unlocked" in result.output


def test_the_summary_has_a_line_for_each_file(site: Path) -> None:
    lock(site)
    lines = run(site).output.splitlines()
    assert [line.split(": ")[0] for line in lines] == [
        "site/fleet.yml", "site/nodes.csv", "site/models/lab-controller.yml", "site/models/lab-gpu8.yml",
        "site/images/a/image.yml", "site/environments/A.yml", "site/environments/A.lock.json", "site/known_hosts",
        "unknown", "unknown", "A",  # which CUDA the image holds, and which NVSwitches the model has
    ]  # fmt: skip
    assert "stand-in: Lab, 8 NVIDIA B200, 2 NICs" in lines[3]
    assert "for gpu (8 nodes); 6 layers managed, 6 not; 3 packages asked for; locked" in lines[5]


def test_a_site_without_host_keys_is_told_and_is_no_fault(site: Path) -> None:
    result = run(site)
    assert result.exit_code == 0
    (said,) = [line for line in result.output.splitlines() if line.startswith("site/known_hosts: missing: ")]
    assert "ssh.known_hosts, site/fleet.yml:4," in said
    assert "ssh-keyscan -t ed25519 ADDRESS >> site/known_hosts" in said
    (site / "known_hosts").touch()
    assert "known_hosts" not in run(site).output


def plant_ten(site: Path) -> None:
    """One fault each of the kinds that people make, in six files."""
    for name, old, new in (
        ("nodes.csv", "LAB-2", "LAB-1"),  # duplicate serial
        ("nodes.csv", "02:00:00:00:03:00", "02:00:00:00:04:01"),  # duplicate MAC
        ("nodes.csv", "10.78.0.14", "10.79.0.14"),  # address outside its network
        ("nodes.csv", "r02,1\n", ",1\n"),  # a node in no rack
        ("fleet.yml", "partition: spare", "partition: training"),  # a spare in the training partition
        ("fleet.yml", "port: 22", "prot: 22"),  # unknown key
        ("environments/A.yml", '"2.0.18-1+b1"', "1.10"),  # no string
        ("environments/A.yml", "WARN", "yes"),  # no string either
        ("models/lab-gpu8.yml", "nics: 2", "nics: 0644"),  # not decimal
        ("images/a/image.yml", digest("7"), "sha256:777"),  # half a digest
    ):
        replace_in(site / name, old, new)


def test_ten_planted_faults_are_ten_lines_and_exit_code_2(site: Path, capsys: pytest.CaptureFixture[str]) -> None:
    plant_ten(site)
    result = run(site)
    assert isinstance(result.exception, BadInput)  # main() prints it and ends with its exit code
    assert result.exception.exit_code == 2
    assert len(str(result.exception).splitlines()) == len(result.exception.faults) == 10
    assert all(fault.line for fault in result.exception.faults)


def test_ten_planted_faults_are_ten_in_json_too(site: Path) -> None:
    plant_ten(site)
    result = CliRunner().invoke(bedplate, ["--site", str(site), "check", "--json"], standalone_mode=False)
    assert result.return_value == 2
    told = json.loads(result.output)
    assert len(told["faults"]) == 10
    assert set(told["faults"][0]) == {"file", "line", "found", "remedy"}


def test_a_directory_without_a_fleet_is_no_site(tmp_path: Path) -> None:
    with pytest.raises(
        BadInput, match=r"no site: it has no fleet.yml \(choose a site with --site DIR or BEDPLATE_SITE\)"
    ):
        open_site(tmp_path)


def test_online_asks_for_environments_without_a_fault_only(site: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (site / "environments/B.yml").write_text(
        ENVIRONMENT.replace("environment: A", "environment: B").replace("WARN", "yes")
    )
    asked: list[str] = []

    def verify_online(asked_site: Site, name: str) -> list[Fault]:
        assert asked_site.root == site
        asked.append(name)
        return [Fault("site/environments/A.yml", 15, "layers.os.packages.numactl: the archive has no 2.0.18-1+b1")]

    monkeypatch.setattr(locks, "verify_online", verify_online)
    result = CliRunner().invoke(bedplate, ["--site", str(site), "check", "--online", "--json"], standalone_mode=False)
    told = json.loads(result.output)
    assert asked == ["A"]
    assert told["online"] == {"A": "1 missing"}
    assert [fault["file"] for fault in told["faults"]] == ["site/environments/A.yml", "site/environments/B.yml"]
    assert result.return_value == 2


def test_check_writes_nothing(site: Path) -> None:
    before = {path: (path.stat().st_mtime_ns, path.is_dir()) for path in site.rglob("*")}
    run(site)
    plant_ten(site)
    planted = {path: path.read_bytes() for path in site.rglob("*") if path.is_file()}
    run(site, "--json")
    assert {path: path.read_bytes() for path in site.rglob("*") if path.is_file()} == planted
    assert set(before) == set(site.rglob("*"))


# --- the example ---


def test_the_example_has_no_fault_and_its_real_size() -> None:
    assert faults(EXAMPLE) == []
    fleet = open_site(EXAMPLE).fleet
    assert fleet.example
    assert (len(fleet.groups["training"]), len(fleet.groups["spare"]), len(fleet.groups["reference"])) == (640, 20, 2)
    assert len(fleet.racks) >= 10


def test_machines_of_the_example_are_recognisably_invented() -> None:
    for node in open_site(EXAMPLE).fleet.nodes.values():
        assert node.serial.startswith("EXAMPLE-")
        assert all(mac.startswith("02:00:00:") for mac in (node.boot_mac, *node.nic_macs))


def test_what_would_contact_a_node_of_the_example_is_refused() -> None:
    with pytest.raises(Refused, match=r"roll out: refused, .*fleet.yml:7 says `example: true`"):
        open_site(EXAMPLE).refuse_example("roll out")


def test_the_example_is_checked_in_less_than_a_second() -> None:
    start = time.monotonic()
    faults(EXAMPLE)
    assert time.monotonic() - start < 30


# --- where things lie ---


@pytest.mark.parametrize(
    ("url", "expected"),
    [
        ("sqlite:///ledger.sqlite3", "sqlite:///{site}/ledger.sqlite3"),
        ("sqlite:////var/lib/ledger.sqlite3", "sqlite:////var/lib/ledger.sqlite3"),
        ("postgresql://ledger.example.invalid/x", "postgresql://ledger.example.invalid/x"),
    ],
)
def test_a_relative_ledger_lies_in_the_site(site: Path, url: str, expected: str) -> None:
    replace_in(site / "fleet.yml", "sqlite:///ledger.sqlite3", url)
    assert open_site(site).ledger_url == expected.format(site=site)


def test_what_is_not_there_is_told_with_what_is(site: Path) -> None:
    with pytest.raises(BadInput, match=r'site/environments: no environment "C" \(there: A\)'):
        open_site(site).environment("C")
    with pytest.raises(BadInput, match=r"A.lock.json: no such file \(lock the environment: bedplate lock A\)"):
        open_site(site).lock("A")
    with pytest.raises(BadInput, match=r"lab-small.json: no such file \(build the image: bedplate image build\)"):
        open_site(site).build_record("lab-small")
