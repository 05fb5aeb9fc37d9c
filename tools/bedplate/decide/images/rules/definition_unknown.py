"""A definition says all that it pins: `unknown` is the word for what nobody has looked up yet."""

from collections.abc import Iterable

from bedplate.decide.images.recipe import Recipe, Role
from bedplate.decide.images.rule import Rule
from bedplate.model.faults import Fault


def _check(recipe: Recipe) -> Iterable[Fault]:
    return recipe.image.unknown if recipe.image and recipe.role is Role.OWN else ()


RULE = Rule(
    id="DEFINITION-UNKNOWN",
    title="A definition says all that it pins",
    source="a tag that moved was found out in production; what is unknown is never built",
    check=_check,
)
