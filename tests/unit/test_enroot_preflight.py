"""Which directory role enroot asks for its room and its file system."""

import os
import subprocess
from pathlib import Path

import pytest
import yaml

from bedplate.sources import checkout

PREFLIGHT = checkout.root() / "roles/enroot/tasks/preflight.yml"


@pytest.mark.parametrize(
    ("there", "asked"),
    [("raid/enroot", "raid/enroot"), ("raid", "raid"), (".", ".")],
    ids=["the directory itself, which may be a mount", "the one above", "the nearest that is there"],
)
def test_the_nearest_directory_that_exists_is_asked(tmp_path: Path, there: str, asked: str) -> None:
    (tmp_path / there).mkdir(parents=True, exist_ok=True)
    df = tmp_path / "bin/df"
    df.parent.mkdir()
    df.write_text('#!/bin/sh\nfor word; do :; done; echo "$word"\n')  # its last word
    df.chmod(0o755)
    argv = yaml.safe_load(PREFLIGHT.read_text())[0]["ansible.builtin.command"]["argv"]
    done = subprocess.run(
        [*argv[:-1], str(tmp_path / "raid/enroot")],
        env={"PATH": f"{df.parent}:{os.environ['PATH']}"}, stdout=subprocess.PIPE, text=True, check=True,
    )  # fmt: skip
    assert Path(done.stdout.strip()) == tmp_path / asked
