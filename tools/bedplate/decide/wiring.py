"""What roles get of a lock: the slice of a kind of node, in the shapes that roles ask for."""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from bedplate.decide.lockdoc import LockDocument
from bedplate.decide.packages import kernel_releases, loaded_driver
from bedplate.decide.render import RenderedFile
from bedplate.model.canonical import sha256
from bedplate.model.faults import Refused

KEYRING = "/etc/apt/keyrings/bedplate.asc"  # as roles/apt_source/templates/bedplate.sources.j2 names it


def kind_values(lock: LockDocument, kind: str, archive_key: bytes) -> dict[str, Any]:
    """The slice of one kind of node, the same for all of its nodes.

    kernel, driver: release of its kernel packages and version of its driver, as a kernel says both; packages_of:
    layer -> every package of the closure as {name, version}; archive.key: the archive's key as an item of files_of.

    Raises:
        Refused: the key is not the one that the lock was made with.
    """
    part = lock.slice(kind)
    if sha256(archive_key) != part["archive"]["key_sha256"]:
        raise Refused(
            f"the archive key is {sha256(archive_key)}, lock {lock.name} was made with {part['archive']['key_sha256']}"
        )
    packages_of: dict[str, list[dict[str, str]]] = {}
    for name, package in sorted(part["packages"].items()):
        packages_of.setdefault(package["layer"], []).append({"name": name, "version": package["version"]})
    key = {"path": KEYRING, "mode": "0644", "content": archive_key.decode(), "sha256": sha256(archive_key)}
    return part | {
        "packages_of": packages_of, "closure": [item for items in packages_of.values() for item in items],
        "archive": part["archive"] | {"key": key},
        "kernel": the_kernel(part["packages"]),
        "driver": the_driver({name: package["version"] for name, package in part["packages"].items()}),
    }  # fmt: skip


def the_kernel(names: Iterable[str]) -> str:
    """The kernel, as `uname -r` says it, that the packages of a lock have; empty where they have none, or several."""
    releases = kernel_releases(names)
    return releases.pop() if len(releases) == 1 else ""


def the_driver(packages: Mapping[str, str]) -> str:
    """The version that the loaded driver must have; empty where the lock has no driver. packages: name -> version."""
    found = loaded_driver(packages)
    return found[1] if found else ""


def files_of(files: Sequence[RenderedFile]) -> dict[str, list[dict[str, str]]]:
    """The files of one node: role -> list of {path, mode, content, sha256}."""
    by_role: dict[str, list[dict[str, str]]] = {}
    for file in files:
        item = {"path": file.path, "mode": file.mode, "content": file.data.decode(), "sha256": file.sha256}
        by_role.setdefault(file.role, []).append(item)
    return by_role
