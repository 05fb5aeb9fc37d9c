"""The checkout is at the commit that the definition names, and so is the tag."""

from collections.abc import Iterable, Iterator

from bedplate.decide.images.recipe import Commits, Recipe, Role
from bedplate.decide.images.rule import Rule
from bedplate.model.faults import Fault
from bedplate.model.image import UNKNOWN, Upstream
from bedplate.model.text import Document


def _check(recipe: Recipe) -> Iterable[Fault]:
    if not (recipe.image and recipe.image.upstream and recipe.commits and recipe.role is Role.UPSTREAM):
        return ()
    return commit_faults(recipe.image.document, recipe.image.upstream, recipe.commits)


def commit_faults(document: Document, upstream: Upstream, git: Commits) -> Iterator[Fault]:
    """What of tag, commit and checkout disagrees, each with the two that do: `image build` refuses it."""
    wanted = git.head if upstream.commit == UNKNOWN else upstream.commit
    if git.tag is None:
        found = f"no tag {upstream.tag} in {git.folder}, which is at {git.head}"
        if upstream.commit not in {UNKNOWN, git.head}:
            found += f"; the definition says {upstream.commit}"
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
