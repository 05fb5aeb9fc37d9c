"""The lockfiles are the ones that the definition names by their hashes."""

from collections.abc import Iterator

from bedplate.decide.images.recipe import Recipe, Role
from bedplate.decide.images.rule import Rule
from bedplate.model.canonical import sha256
from bedplate.model.faults import Fault
from bedplate.model.image import UNKNOWN


def _check(recipe: Recipe) -> Iterator[Fault]:
    if not (recipe.image and recipe.image.upstream and recipe.role is Role.UPSTREAM):
        return
    for path, digest in recipe.image.upstream.lockfiles.items():
        at = ("upstream", "lockfiles", path)
        if path not in recipe.texts:
            yield recipe.image.document.fault(at, f"no {recipe.inside(path)}", "correct the path")
        elif digest not in {UNKNOWN, found := sha256(recipe.texts[path].encode())}:
            said = f"{digest}, but {recipe.inside(path)} has {found}"
            yield recipe.image.document.fault(at, said, "look what changed, then write the new hash")


RULE = Rule(
    id="LOCKFILE-DIGEST",
    title="The lockfiles are the ones that the definition names",
    source="uv's --locked compares a lock with pyproject.toml only, not with what was reviewed",
    check=_check,
)
