"""What every role must have, and what the linters say of roles and playbooks."""

import os
import re
import subprocess
import sys
from functools import cache
from pathlib import Path
from typing import Any

import pytest
import yaml

from bedplate.decide.render import file_entries
from bedplate.decide.roles import declared
from bedplate.decide.squashfs import IMAGES
from bedplate.sources import checkout

ROOT = checkout.root()
ROLES = sorted(path.name for path in (ROOT / "roles").iterdir() if path.is_dir())
WIRING = ROOT / "playbooks" / "group_vars" / "all" / "wiring.yml"
PARTS = ("preflight", "install", "configure", "run")  # in this order, those that a role has


@cache
def read(path: Path) -> Any:
    return yaml.safe_load(path.read_text())


def options(role: str) -> dict[str, dict[str, Any]]:
    """The options of every entry point of a role, by name."""
    specs = read(ROOT / "roles" / role / "meta" / "argument_specs.yml")["argument_specs"]
    return {name: option for spec in specs.values() for name, option in spec["options"].items()}


@pytest.mark.parametrize("role", ROLES)
def test_a_role_has_the_files_that_every_role_has(role: str) -> None:
    place = ROOT / "roles" / role
    for name in ("tasks/main.yml", "meta/main.yml", "meta/argument_specs.yml", "defaults/main.yml"):
        assert (place / name).is_file(), f"roles/{role}/{name}"
    assert "main" in read(place / "meta" / "argument_specs.yml")["argument_specs"]
    assert read(place / "meta" / "main.yml")["galaxy_info"]["license"] == "Apache-2.0"


@pytest.mark.parametrize("role", ROLES)
def test_defaults_are_the_optional_options_with_their_values(role: str) -> None:
    # ansible/ansible#80298: a default in argument_specs is documentation, and reaches no task.
    defaults = read(ROOT / "roles" / role / "defaults" / "main.yml") or {}
    optional = {name: option.get("default") for name, option in options(role).items() if not option["required"]}
    assert defaults == optional
    assert not [name for name, option in options(role).items() if option["required"] and "default" in option]


@pytest.mark.parametrize("role", ROLES)
def test_options_start_with_the_roles_name_and_say_what_they_are(role: str) -> None:
    for name, option in options(role).items():
        assert name.startswith(f"{role}_"), name
        assert option["description"], name
        assert option["type"], name
        assert option["type"] != "list" or option["elements"], name


@pytest.mark.parametrize("role", ROLES)
def test_every_variable_that_a_role_reads_is_an_option_and_every_option_is_read(role: str) -> None:
    texts = [
        path.read_text() for folder in ("tasks", "vars") for path in (ROOT / "roles" / role / folder).glob("*.yml")
    ]
    # \b: registered variables begin with __
    used = {name for text in texts for name in re.findall(rf"\b{role}_[a-z0-9_]+\b", text)}
    assert used == options(role).keys()


@pytest.mark.parametrize("role", ROLES)
def test_tasks_main_is_a_table_of_contents(role: str) -> None:
    tasks = ROOT / "roles" / role / "tasks"
    parts = sorted(path.stem for path in tasks.glob("*.yml") if path.stem != "main")
    assert set(parts) <= set(PARTS), "a part that roles do not have"
    if not parts:
        assert len(read(tasks / "main.yml")) <= 3
        return
    entries = read(tasks / "main.yml")
    assert all(set(entry) == {"name", "ansible.builtin.import_tasks"} for entry in entries)
    named = [entry["ansible.builtin.import_tasks"] for entry in entries]
    entry_points = read(ROOT / "roles" / role / "meta" / "argument_specs.yml")["argument_specs"].keys() - {"main"}
    assert set(named) | {f"{point}.yml" for point in entry_points} == {f"{part}.yml" for part in parts}
    assert named == sorted(named, key=[f"{part}.yml" for part in PARTS].index)
    assert [entry["name"] for entry in entries] == [name.removesuffix(".yml").capitalize() for name in named]


def test_what_the_wiring_gives_is_what_roles_ask_for() -> None:
    asked = {name: option for role in ROLES for name, option in options(role).items()}
    given = {name for name in read(WIRING) if not name.startswith("bedplate_")}  # of the playbooks themselves
    assert given <= asked.keys(), "a value for no role"
    internal = ("files_", "packages_")  # given by the roles that use these two
    required = {name for name, option in asked.items() if option["required"] and not name.startswith(internal)}
    assert required <= given, "a required value that nobody gives"


def test_a_file_of_a_role_is_declared_and_a_template_is_used() -> None:
    entries = file_entries(checkout.roles())
    assert {entry.template for entry in entries} == {name for name in checkout.roles() if "/templates/" in name}


def test_every_role_says_who_gets_it_or_is_used_by_one_that_does() -> None:
    chosen = {role.name for role in declared(checkout.roles())}
    used = "".join(
        path.read_text() for pattern in ("playbooks/steps/*.yml", "roles/*/tasks/*.yml") for path in ROOT.glob(pattern)
    )
    assert [role for role in ROLES if role not in chosen and f"name: {role}\n" not in used] == []


def test_a_role_with_a_preflight_has_the_tasks_and_the_entry_point() -> None:
    for role in declared(checkout.roles()):
        entry_points = read(ROOT / "roles" / role.name / "meta" / "argument_specs.yml")["argument_specs"]
        assert role.preflight == ("preflight" in entry_points), role.name


# --- linters --------------------------------------------------------------------------------------


def program(*words: str | Path, **env: str) -> None:
    done = subprocess.run(
        [Path(sys.executable).with_name(str(words[0])), *words[1:]],
        check=False, cwd=ROOT, capture_output=True, text=True, timeout=1800, env=os.environ | env,
    )  # fmt: skip
    assert done.returncode == 0, done.stdout + done.stderr


def test_role_image_looks_where_images_are_placed() -> None:
    assert read(ROOT / "roles/image/defaults/main.yml")["image_directory"] == IMAGES


def test_yamllint_has_nothing_to_say() -> None:
    program("yamllint", "--strict", ".ansible-lint", ".yamllint", "inventory", "playbooks", "roles", "tests")


@pytest.mark.slow
def test_playbooks_can_be_parsed_without_a_site() -> None:
    books = sorted((ROOT / "playbooks").glob("*.yml"))
    words: list[str | Path] = ["--syntax-check", "-i", "localhost,", *books]
    program("ansible-playbook", *words, ANSIBLE_INVENTORY_ENABLED="host_list")


@pytest.mark.slow
def test_ansible_lint_has_nothing_to_say(tmp_path: Path) -> None:
    hosts = tmp_path / "hosts"
    hosts.write_text("localhost\n")
    # Each role and playbook is parsed by an ansible-playbook of its own; none of them needs the 660 example nodes.
    env = {"ANSIBLE_INVENTORY": str(hosts), "ANSIBLE_INVENTORY_ENABLED": "ini", "ANSIBLE_HOME": str(tmp_path / "home")}
    program("ansible-lint", "--offline", "--nocolor", "playbooks", "roles", **env)
