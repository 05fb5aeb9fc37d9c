"""Runbooks: every block says where it is typed, is shell, and is run by tests/lab/test_slurm.py."""

import re
import subprocess
from pathlib import Path

import pytest

OPERATIONS = Path(__file__).resolve().parents[2] / "docs/operations"
PAGES = sorted(page for page in OPERATIONS.glob("*.md") if page.name != "README.md")


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.stem)
def test_every_block_names_its_machine_and_is_shell(page: Path) -> None:
    fences = re.findall(r"^```(.*)$", page.read_text(), re.MULTILINE)
    assert fences[1::2] == [""] * (len(fences) // 2), "a fence is not closed"
    assert all(re.fullmatch(r"bash on=(controller|services|node)", fence) for fence in fences[::2])
    for script in re.findall(r"^```bash on=\w+\n(.*?)^```$", page.read_text(), re.MULTILINE | re.DOTALL):
        subprocess.run(["bash", "-n"], input=script, text=True, check=True)


def test_the_list_of_runbooks_is_whole() -> None:
    listed = re.findall(r"\]\(([^)]+)\)", (OPERATIONS / "README.md").read_text())
    assert sorted(listed) == [page.name for page in PAGES]
