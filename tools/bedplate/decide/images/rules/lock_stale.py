"""The lock fits pyproject.toml: a version raised by hand, or one that git computes, makes --locked fail."""

from collections.abc import Iterator
from typing import Any

from bedplate.decide.images.fetching import normal
from bedplate.decide.images.recipe import LOCK, PROJECT, Recipe
from bedplate.decide.images.rule import Rule
from bedplate.model.faults import Fault

_REMEDY = "lock it again, with the uv that the image has"


def _check(recipe: Recipe) -> Iterator[Fault]:
    project = recipe.project.get("project")
    if not isinstance(project, dict):
        return
    name, file = normal(str(project.get("name", ""))), recipe.inside(LOCK)
    if LOCK not in recipe.texts:
        if "dependencies" in project:
            yield Fault(recipe.inside(PROJECT), None, f"no {LOCK} beside it", "write it: uv lock")
        return
    mine = next((package for package in recipe.locked if normal(package["name"]) == name), None)
    if mine is None:
        yield Fault(file, None, f"does not have {name}, of which {PROJECT} is", _REMEDY)
        return
    at = recipe.lock_line(mine["name"])
    if "version" in _dynamic(project):
        # uv leaves such a version out of its lock since 0.5.27, and churned it before
        if "version" in mine:
            found = f"{name} {mine['version']}: {PROJECT} says that its version is dynamic"
            yield Fault(file, at, found, "write the version down, or every commit makes the lock stale")
    elif str(project.get("version")) != str(mine.get("version")):
        found = f"{name} {mine.get('version')}, but {PROJECT} says {project.get('version')}: --locked fails"
        yield Fault(file, at, found, _REMEDY)
    wanted = {normal(str(each)) for each in project.get("dependencies", [])}
    metadata = mine.get("metadata")
    listed = metadata.get("requires-dist", []) if isinstance(metadata, dict) else []
    there = {normal(str(each.get("name", ""))) for each in listed if isinstance(each, dict)}
    if missing := sorted(wanted - there):
        yield Fault(
            file, at, f"{PROJECT} wants {', '.join(missing)}, the lock does not know it: --locked fails", _REMEDY
        )


def _dynamic(project: dict[str, Any]) -> list[str]:
    said = project.get("dynamic", [])
    return [str(each) for each in said] if isinstance(said, list) else []


RULE = Rule(
    id="LOCK-STALE",
    title="The lock fits pyproject.toml",
    source="vibetuner#946 (a raised version), uv-dynamic-versioning#63 (a version from git)",
    check=_check,
)
