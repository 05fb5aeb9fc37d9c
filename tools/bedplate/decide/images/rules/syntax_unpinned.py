"""The frontend that reads a Dockerfile has a digest: it is an image like any other, and decides what RUN means."""

from collections.abc import Iterator

from bedplate.decide.images.recipe import Recipe, Role
from bedplate.decide.images.rule import Rule
from bedplate.decide.images.rules.syntax_ignored import heeded
from bedplate.decide.images.sourcepolicy import pinned
from bedplate.model.canonical import DIGEST
from bedplate.model.faults import Fault


def _check(recipe: Recipe) -> Iterator[Fault]:
    taken = heeded(recipe.text)
    pins = recipe.image.upstream.pins if recipe.image and recipe.image.upstream and recipe.role is Role.UPSTREAM else {}
    if taken and not pinned(taken[1], pins) and not DIGEST.fullmatch(taken[1].rpartition("@")[2]):
        yield recipe.fault(taken[0], f"# syntax={taken[1]}: no digest pins the frontend", "write NAME:TAG@sha256:…")


RULE = Rule(
    id="SYNTAX-UNPINNED",
    title="The frontend that reads a Dockerfile has a digest",
    source="buildkit: the syntax directive names an image that is pulled for each build",
    check=_check,
)
