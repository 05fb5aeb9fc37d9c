"""What our lock would install has the version of upstream's lock: it extends that, and replaces nothing.

`uv sync --inexact` in an image that upstream's lock filled puts our version in the place of theirs, and says nothing.
"""

import re
from collections.abc import Iterator, Mapping

from bedplate.decide.images.core import is_core
from bedplate.decide.images.packages import locked, normal
from bedplate.decide.images.recipe import LOCK, PROJECT, Recipe
from bedplate.decide.images.rule import Rule
from bedplate.model.faults import BadInput, Fault

_LEFT_OUT = re.compile(r"--no-install-package[ =]([A-Za-z0-9._-]+)")
_VERSION = re.compile(r"[0-9][^\s]*")  # exactly one, and one that the lock says


def _check(recipe: Recipe) -> Iterator[Fault]:
    if not recipe.below or not recipe.locked:
        return
    try:
        theirs = locked(recipe.below, LOCK)
    except BadInput:
        return  # FILE-UNREADABLE says it of the file itself
    left_out = {normal(name) for name in _LEFT_OUT.findall(recipe.text)}
    ours = _installed(recipe)
    for name in sorted(ours.keys() & theirs.keys()):
        stays = is_core(name) or name in left_out or ours[name] == theirs[name]
        if stays or not _VERSION.fullmatch(theirs[name]):
            continue
        found = f"{name} {ours[name]} would replace the {theirs[name]} of upstream's lock"
        remedy = f'"{name}=={theirs[name]}" in constraint-dependencies of [tool.uv] ({PROJECT}), then: uv lock'
        yield Fault(recipe.inside(LOCK), recipe.lock_line(name), found, remedy)


def _installed(recipe: Recipe) -> Mapping[str, str]:
    """What the project needs, and what that needs with its extras; not the project's own groups and extras.

    All of the lock where no project is in it.
    """
    packages = {normal(str(package["name"])): package for package in recipe.locked}
    own = [name for name, package in packages.items() if _is_project(package)]
    wanted, found = [(name, "") for name in own or packages], set[tuple[str, str]]()
    while wanted:
        name, extra = wanted.pop()
        if (name, extra) in found or name not in packages:
            continue
        found.add((name, extra))
        of = packages[name]
        for need in of.get("optional-dependencies", {}).get(extra, []) if extra else of.get("dependencies", []):
            if isinstance(need, dict) and "name" in need:
                wanted += [(normal(str(need["name"])), part) for part in ("", *need.get("extra", ()))]
    return {name: str(packages[name].get("version", "")) for name, _ in found if name not in own}


def _is_project(package: Mapping[str, object]) -> bool:
    source = package.get("source")
    return isinstance(source, dict) and bool(source.keys() & {"editable", "virtual"})


RULE = Rule(
    id="LOCK-EXTENDS",
    title="What our lock installs has the version of upstream's lock, or is not in it",
    source="images/training against Megatron-LM's uv.lock at core_v0.19.0: filelock, fsspec, pydantic and others",
    check=_check,
)
