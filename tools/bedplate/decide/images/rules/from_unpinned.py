"""What an image is built from has a digest: a tag is moved by whoever may push."""

import re
from collections.abc import Iterator

from bedplate.decide.images.recipe import Recipe, Role, froms
from bedplate.decide.images.rule import Rule
from bedplate.decide.images.sourcepolicy import pinned
from bedplate.model.canonical import DIGEST
from bedplate.model.faults import Fault


def _check(recipe: Recipe) -> Iterator[Fault]:
    if recipe.role is Role.OWN:
        return  # DEFINITION-BASE: a definition's Dockerfile has one base, and no other image
    for stage in recipe.stages:
        if stage.external and not _pinned(recipe, stage.base):
            said = f"FROM {stage.written}" + (f", which is {stage.base}" if stage.base != stage.written else "")
            yield recipe.fault(stage.line, f"{said}: {_why(stage.base)}", _remedy(recipe, stage.base))
    names = {stage.name for stage in recipe.stages} | {str(stage.index) for stage in recipe.stages}
    for step in recipe.steps:
        for name in froms(step):
            if name.lower() not in names and not _pinned(recipe, name):
                found = f"{step.instruction.name} takes files from {name}: {_why(name)}"
                yield recipe.fault(step.instruction.line, found, _remedy(recipe, name))


def _pinned(recipe: Recipe, name: str) -> bool:
    if recipe.image and name.startswith((recipe.image.base, f"{recipe.image.called}@")):
        return True  # by the definition; a digest that is unknown there is told there
    upstream = recipe.image.upstream if recipe.image and recipe.role is Role.UPSTREAM else None
    if upstream and pinned(name, upstream.pins):
        return True
    return DIGEST.fullmatch(name.rpartition("@")[2]) is not None


def _why(name: str) -> str:
    return "nobody says which image that is" if re.search(r"\$|^$", name) else "no digest pins it"


def _remedy(recipe: Recipe, name: str) -> str:
    if recipe.role is Role.UPSTREAM:
        return "image.yml pins it: base, under the name of base_argument, or upstream.pins"
    return "write NAME:TAG@sha256:…, the digest of the index" if "$" not in name else "give the argument a default"


RULE = Rule(
    id="FROM-UNPINNED",
    title="What an image is built from has a digest",
    source="docker/Dockerfile.ci.dev: FROM_IMAGE_NAME has a tag as default since 0.19, and none in 0.16 to 0.18",
    check=_check,
)
