"""The base that stands in several places is the same in all of them."""

from collections.abc import Iterator

from bedplate.decide.dockerfile import instructions
from bedplate.decide.images.recipe import NGC_VERSION, Recipe, Role
from bedplate.decide.images.rule import Rule
from bedplate.model.faults import Fault


def _check(recipe: Recipe) -> Iterator[Fault]:
    named = recipe.texts.get(NGC_VERSION, "").strip()
    for one in instructions(recipe.text):
        name, equals, default = (one.words or ("",))[0].partition("=")
        if one.name != "ARG" or not equals or name != _argument(recipe):
            continue
        if named and named != default:
            found = f"ARG {name}={default}, but {recipe.inside(NGC_VERSION)} says {named}"
            yield recipe.fault(one.line, found, "the bump forgot one of the two: ask upstream which")
        if recipe.image and recipe.role is Role.UPSTREAM and recipe.image.base != default:
            found = f"ARG {name}={default}, but base in {recipe.image.document.file} is {recipe.image.base}"
            yield recipe.fault(one.line, found, "the recipe was written for its own base: take that one")


def _argument(recipe: Recipe) -> str:
    upstream = recipe.image.upstream if recipe.image else None
    return upstream.base_argument if upstream else "FROM_IMAGE_NAME"


RULE = Rule(
    id="BASE-TWICE",
    title="The base that stands in several places is the same in all of them",
    source="Megatron-LM: the base pin stands twice, and forgetting one is the most common failure of a bump",
    check=_check,
)
