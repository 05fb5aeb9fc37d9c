"""A small repository with somebody's recipe: the stages of docker/Dockerfile.ci.dev, and each trap of it, in git."""

import os
import subprocess
from dataclasses import dataclass, field
from pathlib import Path

ADDRESS = "https://git.example/NVIDIA/Megatron-LM"
OPS = "https://git.example/team/ops.git"
DOCKERFILE = """\
# Copyright of somebody
# syntax=docker/dockerfile:1.3-labs
ARG FROM_IMAGE_NAME=nvcr.io/nvidia/pytorch:26.06-py3
FROM ${FROM_IMAGE_NAME} AS main
ARG UV_VERSION=0.7.2
RUN <<"EOF" bash -ex
    curl -LsSf https://uv.example/${UV_VERSION}/install.sh | sh
EOF
COPY README.md pyproject.toml uv.lock /workspace/
COPY megatron/core/__init__.py megatron/core/package_info.py /workspace/megatron/core/
COPY assets/ /opt/data/
FROM main AS jet
RUN --mount=type=secret,id=JET_INDEX_URLS true
"""
FILES = {
    "README.md": "a recipe\n",
    "pyproject.toml": '[project]\nname = "megatron-core"\nversion = "0.19.2"\n',
    "uv.lock": 'version = 1\nrevision = 2\n\n[[package]]\nname = "megatron-core"\nversion = "0.19.2"\n',
    "docker/Dockerfile.ci.dev": DOCKERFILE,
    "docker/common/install.sh": "#!/bin/sh\ntrue\n",
    "megatron/core/__init__.py": "",
    "megatron/core/package_info.py": "MAJOR = 0\nMINOR = 19\nPATCH = 2\n",
}


def git(folder: Path, *words: str) -> str:
    settings = {
        "GIT_AUTHOR_NAME": "a", "GIT_AUTHOR_EMAIL": "a@example", "GIT_COMMITTER_NAME": "a",
        "GIT_COMMITTER_EMAIL": "a@example", "GIT_CONFIG_GLOBAL": "/dev/null", "GIT_CONFIG_SYSTEM": "/dev/null",
        "GIT_AUTHOR_DATE": "2026-08-20T00:00:00Z", "GIT_COMMITTER_DATE": "2026-08-20T00:00:00Z",
    }  # fmt: skip
    words = ("git", "-c", "init.defaultBranch=main", "-C", str(folder), *words)
    done = subprocess.run(words, check=True, capture_output=True, text=True, env={**os.environ, **settings})
    return done.stdout.strip()


def write(folder: Path, files: dict[str, str]) -> None:
    for name, text in files.items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
        path.chmod(0o755 if name.endswith(".sh") else 0o644)


@dataclass
class Repository:
    """A repository with a commit and, where it has one, an annotated tag."""

    folder: Path
    files: dict[str, str] = field(default_factory=lambda: dict(FILES))
    tag: str | None = "core_v0.19.2"

    def __post_init__(self) -> None:
        self.folder.mkdir(parents=True)
        git(self.folder, "init", "--quiet")
        write(self.folder, self.files)
        self.commit("first")
        if self.tag:
            git(self.folder, "tag", "-a", "-m", "release", self.tag)

    @property
    def head(self) -> str:
        return git(self.folder, "rev-parse", "HEAD")

    def commit(self, message: str) -> str:
        git(self.folder, "add", "--all")
        git(self.folder, "commit", "--quiet", "--allow-empty", "-m", message)
        return self.head


def instead_of(addresses: dict[str, Path]) -> dict[str, str]:
    """What makes git take a directory for an address of the network: git's own setting, by the environment."""
    said = {"GIT_CONFIG_COUNT": str(len(addresses))}
    for number, (address, folder) in enumerate(addresses.items()):
        said[f"GIT_CONFIG_KEY_{number}"] = f"url.{folder}.insteadOf"
        said[f"GIT_CONFIG_VALUE_{number}"] = address
    return said
