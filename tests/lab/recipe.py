"""Somebody's recipe for image b: a repository with stages and traps like Megatron-LM's, one commit in every lab.

It stands in for a repository on the network: git on the controller is told to take a directory for the address.
"""

import os
from pathlib import Path

from bedplate.process import run

ADDRESS = "https://git.lab/somebody/recipe"
TAG = "v1.0"
PLACE = Path("/srv/git/recipe")
GITCONFIG = f'[url "{PLACE}"]\n\tinsteadOf = {ADDRESS}\n'
CODE = "/opt/recipe"  # where image b has it

# Stage main is what everybody builds; the one behind it wants what nobody has. assets/ is not in the repository.
FILES = {
    "Dockerfile": """\
# A comment, so that the next line is one too
# syntax=docker/dockerfile:1.3-labs
ARG FROM_IMAGE_NAME=registry.example/base:1
FROM ${FROM_IMAGE_NAME} AS main
ARG STEPS=10
COPY README.md recipe/version.py /workspace/
COPY assets/ /opt/data/
RUN mkdir -p /opt/lab && seq 1 ${STEPS} > /opt/lab/steps
FROM main AS theirs
RUN --mount=type=secret,id=THEIRS cat /run/secrets/THEIRS
""",
    "README.md": "A recipe\n",
    "recipe/__init__.py": "",
    "recipe/version.py": 'VERSION = "1.0"\n',
}
_WHEN = "2025-01-01T00:00:00Z"  # name, time and files make the commit: they are the same in every lab
_WHO = {
    "GIT_AUTHOR_NAME": "Somebody", "GIT_AUTHOR_EMAIL": "somebody@git.lab", "GIT_AUTHOR_DATE": _WHEN,
    "GIT_COMMITTER_NAME": "Somebody", "GIT_COMMITTER_EMAIL": "somebody@git.lab", "GIT_COMMITTER_DATE": _WHEN,
    "GIT_CONFIG_GLOBAL": "/dev/null", "GIT_CONFIG_SYSTEM": "/dev/null",
}  # fmt: skip


def make(root: Path) -> str:
    """Make the repository in the controller's root, before it boots; the result is its commit."""
    folder, environment = root / PLACE.relative_to("/"), {**os.environ, **_WHO}

    def git(*words: str) -> str:
        return run(["git", "-C", folder, *words], env=environment).out.strip()

    for name, text in FILES.items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
        path.chmod(0o644)
    git("init", "--quiet", "--initial-branch=main")
    git("add", "--all")
    git("commit", "--quiet", "--message=A recipe")
    git("tag", "--annotate", "--message=A release", TAG)
    return git("rev-parse", "HEAD")
