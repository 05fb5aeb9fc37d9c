"""The lock and the project file can be read: what nobody can read is no pass."""

import tomllib
from collections.abc import Iterator

from bedplate.decide.images.recipe import LOCK, PROJECT, Recipe
from bedplate.decide.images.rule import Rule
from bedplate.model.faults import Fault


def _check(recipe: Recipe) -> Iterator[Fault]:
    for path in (LOCK, PROJECT):
        try:
            tomllib.loads(recipe.texts.get(path, ""))
        except tomllib.TOMLDecodeError as fault:
            yield Fault(recipe.inside(path), None, f"no TOML: {fault}", "correct it: nothing in it was looked at")


RULE = Rule(
    id="FILE-UNREADABLE",
    title="The lock and the project file can be read",
    source="merge marks in a uv.lock",
    check=_check,
)
