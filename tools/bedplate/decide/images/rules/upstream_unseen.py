"""The recipe that a definition stands on was looked at: what nobody has read is no pass."""

from collections.abc import Iterator

from bedplate.decide.images.recipe import Recipe, Role
from bedplate.decide.images.rule import Rule
from bedplate.model.faults import Fault


def _check(recipe: Recipe) -> Iterator[Fault]:
    image = recipe.image
    if image and image.upstream and recipe.role is Role.OWN and recipe.commits is None:
        found = f"{image.upstream.dockerfile} of {image.upstream.tag} was not looked at"
        remedy = f"name a checkout of {image.upstream.repository}: --checkout DIR"
        yield image.document.fault(("upstream",), found, remedy)


RULE = Rule(
    id="UPSTREAM-UNSEEN",
    title="The recipe that a definition stands on was looked at",
    source="what is said of a tag that was not at hand comes from its predecessor, and has to be checked again",
    check=_check,
)
