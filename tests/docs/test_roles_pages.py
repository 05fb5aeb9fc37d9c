"""Each role has a page, made from its own files."""

import json
import subprocess
import sys

import pytest

from bedplate.sources import checkout

ROOT = checkout.root()
PAGES = ROOT / "docs" / "roles"
MADE = """
import importlib.util, json, sys
spec = importlib.util.spec_from_file_location("roles", sys.argv[1])
module = importlib.util.module_from_spec(spec); spec.loader.exec_module(module)
print(json.dumps(module.pages()))
"""


@pytest.fixture(scope="module")
def made() -> dict[str, str]:
    said = subprocess.run(
        [sys.executable, "-c", MADE, ROOT / "tests/docs/roles.py"], stdout=subprocess.PIPE, text=True, check=True
    )
    pages: dict[str, str] = json.loads(said.stdout)
    return pages


@pytest.mark.slow
def test_the_pages_of_roles_are_what_the_roles_say(made: dict[str, str]) -> None:
    written = {path.name: path.read_text() for path in PAGES.glob("*.md")}
    differing = sorted(name for name in made.keys() | written.keys() if made.get(name) != written.get(name))
    assert not differing, "run: python tests/docs/roles.py"


def test_every_role_has_a_page_that_says_who_gets_it(made: dict[str, str]) -> None:
    roles = {path.name for path in (ROOT / "roles").iterdir() if path.is_dir()}
    assert {f"{role}.md" for role in roles} | {"README.md"} == made.keys()
    assert all("## Who gets it" in text for name, text in made.items() if name != "README.md")
