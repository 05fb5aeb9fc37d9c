"""A version with a commit in it names the commit that is locked."""

import re
from collections.abc import Iterator
from typing import Any

from bedplate.decide.images.recipe import LOCK, PROJECT, Recipe
from bedplate.decide.images.rule import Rule
from bedplate.model.faults import Fault

_HEX = re.compile(r"\+(?:g|git)?([0-9a-f]{7,40})(?:[.-].*)?$")


def _check(recipe: Recipe) -> Iterator[Fault]:
    said = _metadata(recipe.project)
    for package in recipe.locked:
        source = package.get("source")
        address = str(source.get("git", "")) if isinstance(source, dict) else ""
        commit = address.partition("#")[2]
        if not commit:
            continue
        name = package["name"]
        # The lock repeats what dependency-metadata says; told once, at the place where it can be mended.
        where = f" ({PROJECT}, dependency-metadata)" if name in said else ""
        for version in dict.fromkeys((said.get(name, ""), str(package.get("version", "")))):
            label = _HEX.search(version)
            if label and not commit.startswith(label[1]):
                found = f"{name} {version}{where}, but the commit is {commit}"
                yield Fault(recipe.inside(LOCK), recipe.lock_line(name), found, "correct the label; go by the commit")


def _metadata(project: dict[str, Any]) -> dict[str, str]:
    entries = project.get("tool", {}).get("uv", {}) if isinstance(project.get("tool"), dict) else {}
    listed = entries.get("dependency-metadata", []) if isinstance(entries, dict) else []
    return {
        re.sub(r"[-_.]+", "-", str(entry.get("name", ""))).lower(): str(entry.get("version", ""))
        for entry in (listed if isinstance(listed, list) else [])
        if isinstance(entry, dict)
    }


RULE = Rule(
    id="LOCK-LABEL",
    title="A version with a commit in it names the commit that is locked",
    source="Megatron-LM: FlashMLA 1.0.0+9edee0c in pyproject.toml, b7643bd5 in uv.lock",
    check=_check,
)
