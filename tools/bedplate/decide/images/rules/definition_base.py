"""What a definition's Dockerfile builds from stands in image.yml alone: `image build` refuses what this rule finds."""

from collections.abc import Iterable

from bedplate.decide.dockerfile import dockerfile_faults
from bedplate.decide.images.recipe import Recipe, Role
from bedplate.decide.images.rule import Rule
from bedplate.model.faults import Fault


def _check(recipe: Recipe) -> Iterable[Fault]:
    if recipe.role is not Role.OWN:
        return ()
    contexts, taken = (recipe.image.contexts, recipe.image.taken) if recipe.image else ((), ())
    return dockerfile_faults(recipe.text, recipe.file, contexts, taken)


RULE = Rule(
    id="DEFINITION-BASE",
    title="What a definition builds from stands in image.yml alone",
    source="a second place that says what an image is made of is the one that a bump forgets",
    check=_check,
)
