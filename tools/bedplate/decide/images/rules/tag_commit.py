"""The checkout is at the commit that the definition names, and so is the tag."""

from collections.abc import Iterator

from bedplate.decide.images.recipe import Recipe, Role
from bedplate.decide.images.rule import Rule
from bedplate.model.faults import Fault
from bedplate.model.image import UNKNOWN


def _check(recipe: Recipe) -> Iterator[Fault]:
    if not (recipe.image and recipe.image.upstream and recipe.commits and recipe.role is Role.UPSTREAM):
        return
    document, upstream, git = recipe.image.document, recipe.image.upstream, recipe.commits
    wanted = git.head if upstream.commit == UNKNOWN else upstream.commit
    if git.tag is None:
        found = f"no tag {upstream.tag} in {git.folder}, which is at {git.head}"
        yield document.fault(("upstream", "tag"), found, f"git fetch {upstream.repository} tag {upstream.tag}")
    elif git.tag != wanted:
        said = f"{git.folder} is at" if upstream.commit == UNKNOWN else "commit is"
        found = f"the tag {upstream.tag} is {git.tag}, {said} {wanted}"
        yield document.fault(("upstream", "tag"), found, "a tag was moved, or one of the two is wrong: find out which")
    if upstream.commit not in {UNKNOWN, git.head}:
        found = f"{upstream.commit}, but {git.folder} is at {git.head}"
        yield document.fault(("upstream", "commit"), found, f"git checkout --detach {upstream.commit}")


RULE = Rule(
    id="TAG-COMMIT",
    title="Checkout, tag and definition name one commit",
    source="a tag that moved was found out in production",
    check=_check,
)
