"""Checkouts of git: the one that this command comes from, with the files of its roles; the commits of others."""

import hashlib
import os
from collections.abc import Mapping
from functools import cache
from pathlib import Path
from typing import Any

from bedplate import __version__
from bedplate.model.faults import BadInput
from bedplate.process import run


def root() -> Path:
    """The repository's root: BEDPLATE_CHECKOUT, else the directory above tools/ of this package.

    Raises:
        BadInput: there is no roles/ directory, so no checkout.
    """
    named = os.environ.get("BEDPLATE_CHECKOUT")
    place = Path(named) if named else Path(__file__).resolve().parents[3]
    if not (place / "roles").is_dir():
        raise BadInput(f"{place}: no checkout of bedplate: no directory roles/ (set BEDPLATE_CHECKOUT to one)")
    return place


def roles() -> dict[str, bytes]:
    """Every template, files.yml and role.yml of the roles: path relative to the root -> its bytes, sorted."""
    place = root()
    found = [
        path
        for pattern in ("roles/*/templates/**/*", "roles/*/files.yml", "roles/*/role.yml")
        for path in place.glob(pattern)
        if path.is_file()
    ]
    return {path.relative_to(place).as_posix(): path.read_bytes() for path in sorted(found)}


def autoinstall() -> dict[str, bytes]:
    """Every template of autoinstall/ and the program that machines run: path relative to the root -> its bytes."""
    place = root()
    found = [*place.glob("autoinstall/templates/*.j2"), place / "autoinstall/node.py"]
    return {path.relative_to(place).as_posix(): path.read_bytes() for path in sorted(found)}


READ_BATCH_BY_BATCH = ("playbooks", "roles", "tests/node")  # by Ansible, and by the verification of nodes


def followed_sha256() -> str:
    """What a rollout follows while it runs, as one hash: other after a `git pull`, or the save of an editor.

    Not kept: every batch asks anew.
    """
    place, digest = root(), hashlib.sha256()
    for path in sorted(path for name in READ_BATCH_BY_BATCH for path in (place / name).rglob("*")):
        if "__pycache__" not in path.parts and path.is_file():
            found = hashlib.sha256(path.read_bytes()).hexdigest()
            digest.update(f"{found}  {path.relative_to(place).as_posix()}\n".encode())
    return f"sha256:{digest.hexdigest()}"


@cache
def itself() -> Mapping[str, Any]:
    """Which Bedplate this is, for the record: version, commit, and whether its files differ from that.

    commit: None where the checkout has no git beside it (a copy); then nobody knows whether it was changed.
    """
    commit = _commit(root(), "HEAD")
    changed = run(["git", "-C", root(), "status", "--porcelain", "--untracked-files=no"], check=False, timeout_s=60)
    modified = None if commit is None or changed.code else bool(changed.out.strip())
    return {"version": __version__, "commit": commit, "modified": modified}


def commits(folder: Path, tag: str | None = None) -> tuple[str, str | None]:
    """The commit that a checkout is at, in full, and the commit of a tag; None: there is no such tag.

    Raises:
        BadInput: the directory is no checkout of git.
    """
    head = _commit(folder, "HEAD")
    if head is None:
        raise BadInput(f"{folder}: no checkout of git with a commit (git clone, or name another directory)")
    return head, commit_of_tag(folder, tag) if tag else None


def commit_of_tag(folder: Path, tag: str) -> str | None:
    """The commit that a tag is, if there is one."""
    return _commit(folder, f"refs/tags/{tag}")


def _commit(folder: Path, name: str) -> str | None:
    words: list[str | Path] = [
        "git",
        "-C",
        folder,
        "rev-parse",
        "--quiet",
        "--verify",
        "--end-of-options",
        f"{name}^{{commit}}",
    ]
    said = run(words, check=False, timeout_s=60)
    return said.out.strip() if said.code == 0 else None
