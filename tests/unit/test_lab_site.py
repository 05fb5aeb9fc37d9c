"""The lab's pure parts: the site that it writes passes the checks of any site, the stand-in table is what it says."""

import re
from dataclasses import replace
from itertools import pairwise
from pathlib import Path

import pytest

from bedplate.decide.dockerfile import dockerfile_faults
from bedplate.model.environment import parse_environment
from bedplate.model.fleet import Fleet, parse_fleet
from bedplate.model.hardware import parse_model
from bedplate.model.image import parse_image
from bedplate.model.layers import Layer
from bedplate.process import Finished, run
from lab import recipe, site, standins
from lab.debs import SLURM
from lab.places import address, mac, node_names

DIGEST = "sha256:" + "a" * 64


def given(nodes: int) -> site.Given:
    return site.Given(
        nodes=nodes,
        architecture="amd64",
        archive_key="-----BEGIN PGP PUBLIC KEY BLOCK-----\n",
        real_packages={
            "a": {"numactl": "2.0.16-1", "libnuma1": "2.0.16-1"},
            "b": {"numactl": "2.0.19-1", "libnuma1": "2.0.19-1"},
        },
        registry="registry.lab:5443",
        base_repository="base/debian",
        base_digest=DIGEST,
        host_keys={name: f"ssh-ed25519 KEY-OF-{name}" for name in ["ctl", "svc", *node_names(nodes)]},
        recipe="a" * 40,
        host={"chrony": "4.6.1-3", "rsyslog": "8.2504.0-1", "docker-registry": "2.8.3-1"},
        slurm=dict.fromkeys(SLURM, "24.11.5-4"),
    )


def fleet_of(nodes: int) -> Fleet:
    files = site.site_files(given(nodes))
    return parse_fleet(files["fleet.yml"], files["nodes.csv"])


@pytest.mark.parametrize("nodes", [3, 4, 8, 9, 40, 200])
def test_the_fleet_of_a_lab_of_any_size_has_no_fault(nodes: int) -> None:
    fleet = fleet_of(nodes)
    assert list(fleet.nodes) == ["ctl", "svc", *node_names(nodes)]
    assert fleet.groups["spare"] == tuple(node_names(nodes)[-2:])
    assert fleet.groups["reference"] == ("n1",)
    assert {node.address for node in fleet.nodes.values()} == {address(name) for name in fleet.nodes}
    assert len(fleet.racks) >= 2
    assert {node.rack for node in fleet.nodes_of(["gpu"])} == set(fleet.racks)


def test_the_boot_mac_of_a_node_is_the_one_that_its_host_gets() -> None:
    assert all(node.boot_mac == mac(name) for name, node in fleet_of(8).nodes.items())


def test_known_hosts_names_each_host_by_name_and_address() -> None:
    lines = site.site_files(given(3))["known_hosts"].splitlines()
    assert lines[0] == "ctl,10.77.0.10 ssh-ed25519 KEY-OF-ctl"
    assert lines[1] == "svc,10.77.0.9 ssh-ed25519 KEY-OF-svc"
    assert lines[4] == "n3,10.77.0.13 ssh-ed25519 KEY-OF-n3"


@pytest.mark.parametrize("name", ["A", "B"])
def test_the_environments_have_no_fault_and_ask_for_what_the_archive_has(name: str) -> None:
    environment = parse_environment(site.site_files(given(8))[f"environments/{name}.yml"], f"{name}.yml", name=name)
    in_suite = {
        package.name: {other.upstream for other in standins.TABLE if other.name == package.name}
        for package in standins.TABLE
        if environment.archive.suite in package.suites
    }
    for layer in (Layer.DRIVER, Layer.FABRIC):
        for package, version in environment.layers[layer].packages.items():
            assert version in in_suite[package]


def test_a_and_b_differ_in_every_host_layer_and_image() -> None:
    a, b = (parse_environment(site.site_files(given(8))[f"environments/{name}.yml"], name, name=name) for name in "AB")
    different = {layer for layer in Layer if a.layers[layer] != b.layers[layer]}
    assert different == {Layer.OS, Layer.DRIVER, Layer.FABRIC, Layer.CONTAINER, Layer.IMAGE, Layer.CONFIG}


def test_models_and_images_have_no_fault() -> None:
    files = site.site_files(given(8))
    assert parse_model(files["models/lab-gpu8.yml"], "lab-gpu8.yml").stand_in
    assert parse_model(files["models/lab-controller.yml"], "lab-controller.yml").nics == 0
    images = [parse_image(files[f"images/{suite}/image.yml"], "image.yml") for suite in "ab"]
    assert len({image.name for image in images}) == 2
    assert {image.base_digest for image in images} == {DIGEST}
    assert files["images/a/Dockerfile"] != files["images/b/Dockerfile"]
    assert files["images/a/Dockerfile"].startswith("ARG BASE\nFROM ${BASE}\n")


# --- the stand-ins --------------------------------------------------------------------------------


def test_no_version_of_a_package_is_in_the_table_twice() -> None:
    assert len({(package.name, package.version) for package in standins.TABLE}) == len(standins.TABLE)


def test_an_upstream_version_names_exactly_one_version_of_a_package() -> None:
    upstream = [(package.name, package.upstream) for package in standins.TABLE]
    assert len(set(upstream)) == len(upstream)


def test_the_wanted_version_is_not_the_newest_so_an_unpinned_install_goes_wrong() -> None:
    drivers = [package.upstream for package in standins.TABLE if package.name == "nvidia-driver-570-open"]
    assert max(drivers) != site.A.driver["nvidia-driver-570-open"]
    managers = [package.upstream for package in standins.TABLE if package.name == "nvidia-fabricmanager"]
    assert max(managers) != site.B.fabric["nvidia-fabricmanager"]


@pytest.mark.parametrize("package", standins.TABLE, ids=lambda package: f"{package.name}={package.version}")
def test_every_stand_in_says_so_and_conflicts_with_its_siblings(package: standins.StandIn) -> None:
    fields = dict(line.split(": ", 1) for line in standins.control(package, "amd64").splitlines() if line[0] != " ")
    assert standins.LABEL in fields["Description"]
    assert fields.get("Conflicts") == fields.get("Replaces")
    if re.search("-5[78]0", package.name) and package.part != "nothing":
        assert fields["Conflicts"] in fields["Provides"].split(", ")  # so that only one generation is ever installed
    if package.part in {"driver", "dkms", "utils", "library", "fabric"}:
        assert re.fullmatch(r"\d+\.\d+\.\d+-\d(ubuntu1)?", fields["Version"])


def test_a_stand_in_ships_what_its_part_names_and_no_path_is_shipped_by_two_that_go_together() -> None:
    assert {package.part for package in standins.TABLE} == standins.CONTENTS.keys()
    owners: dict[str, set[str]] = {}
    for part, files in standins.CONTENTS.items():
        for source, place, _ in files:
            assert (standins.PARTS / source).is_file()
            owners.setdefault(place, set()).add(part)
    assert {place: parts for place, parts in owners.items() if len(parts) > 1} == {}


def test_the_fabric_manager_loses_its_suffix_with_branch_580() -> None:
    by_branch = {package.version.split(".")[0]: package for package in standins.TABLE if package.part == "fabric"}
    assert by_branch["570"].name == "nvidia-fabricmanager-570"
    assert by_branch["580"].name == "nvidia-fabricmanager"
    assert "nvidia-fabricmanager-580" in by_branch["580"].provides


def test_files_of_stand_ins_and_their_scripts_are_labelled() -> None:
    for path in standins.PARTS.iterdir():
        assert standins.LABEL in path.read_text(), path
    for package in standins.TABLE:
        for name, script in standins.scripts(package).items():
            assert script.startswith("#!/bin/sh\nset -e\n"), (package.name, name)


def test_addresses_follow_one_by_one() -> None:
    last = [int(address(name).rpartition(".")[2]) for name in ["ctl", *node_names(200)]]
    assert all(after == before + 1 for before, after in pairwise(last))
    assert last[-1] <= 254


# --- nvidia-smi -----------------------------------------------------------------------------------


def nvidia_smi(tmp_path: Path, *words: str, loaded: str = "570.133.20") -> Finished:
    program = tmp_path / "nvidia-smi"
    module = tmp_path / "module/nvidia"
    if loaded:
        module.mkdir(parents=True, exist_ok=True)
        (module / "version").write_text(f"{loaded}\n")
    text = (standins.PARTS / "nvidia-smi").read_text().replace("@VERSION@", "570.133.20")
    program.write_text(text.replace("/sys/module", str(tmp_path / "module")))
    return run(["/bin/sh", program, *words], check=False)


def test_nvidia_smi_answers_a_query_as_the_real_one_does(tmp_path: Path) -> None:
    said = nvidia_smi(tmp_path, "--query-gpu=index,name,driver_version", "--format=csv,noheader")
    assert said.code == 0
    assert said.out.splitlines() == [f"{gpu}, NVIDIA B200, 570.133.20" for gpu in range(8)]


def test_nvidia_smi_prints_a_header_and_units_unless_told_not_to(tmp_path: Path) -> None:
    with_both = nvidia_smi(tmp_path, "--query-gpu=memory.total", "--format=csv").out.splitlines()
    assert with_both[:2] == ["memory.total", "183359 MiB"]
    bare = nvidia_smi(tmp_path, "--query-gpu=memory.total", "--format=csv,noheader,nounits").out.splitlines()
    assert bare == ["183359"] * 8


def test_nvidia_smi_refuses_a_field_that_it_does_not_know(tmp_path: Path) -> None:
    said = nvidia_smi(tmp_path, "--query-gpu=index,colour", "--format=csv")
    assert (said.code, said.out) == (2, 'Field "colour" is not a valid field to query.\n')


def test_nvidia_smi_names_a_driver_that_is_not_loaded_or_not_its_own(tmp_path: Path) -> None:
    absent = nvidia_smi(tmp_path, loaded="")
    assert (absent.code, "couldn't communicate with the NVIDIA driver" in absent.out) == (9, True)
    other = nvidia_smi(tmp_path, loaded="580.126.20")
    assert (other.code, "Driver/library version mismatch" in other.out) == (18, True)


def test_nvidia_smi_says_in_its_table_that_it_is_a_stand_in(tmp_path: Path) -> None:
    assert standins.LABEL in nvidia_smi(tmp_path).out


@pytest.mark.slow
def test_the_recipe_of_image_b_is_one_commit_in_every_lab_and_the_definition_names_it(tmp_path: Path) -> None:
    first, second = (recipe.make(tmp_path / name) for name in "xy")
    assert first == second
    files = site.site_files(replace(given(3), recipe=first))
    image = parse_image(files["images/b/image.yml"], "image.yml")
    assert image.upstream
    assert (image.upstream.commit, image.network, image.unknown) == (first, "none", ())
    assert dockerfile_faults(files["images/b/Dockerfile"], "Dockerfile", image.contexts, image.taken) == []
