"""A lock is written by the uv that installs from it: to an older one, a newer one's may be stale or unreadable.

uv's lock has a `version`, which every uv of another one refuses, and a `revision`, which counts what was added since.
Our lock is installed from by the uv of the stage below, and that one's own lock says what it writes.
"""

import tomllib
from collections.abc import Iterator

from bedplate.decide.images.recipe import LOCK, Recipe
from bedplate.decide.images.rule import Rule
from bedplate.model.faults import Fault


def _check(recipe: Recipe) -> Iterator[Fault]:
    ours, theirs = _format(recipe.texts.get(LOCK, "")), _format(recipe.below)
    if ours is None or theirs is None or (ours[0] == theirs[0] and ours[1] <= theirs[1]):
        return
    upstream = recipe.image.upstream if recipe.image else None
    named = upstream.arguments.get("UV_VERSION") if upstream else None
    found = (
        f"version {ours[0]}, revision {ours[1]} of uv's lock, and upstream's lock has version {theirs[0]},"
        f" revision {theirs[1]}: another uv wrote it than the one that is in the image, so --locked may fail there"
    )
    yield Fault(recipe.inside(LOCK), 1, found, f"lock it again with upstream's uv: uvx uv@{named or 'VERSION'} lock")


def _format(text: str) -> tuple[int, int] | None:
    """Version and revision of a lock; a lock from before there were revisions has 0."""
    try:
        said = tomllib.loads(text)
    except tomllib.TOMLDecodeError:
        return None
    version, revision = said.get("version"), said.get("revision", 0)
    return (version, revision) if isinstance(version, int) and isinstance(revision, int) else None


RULE = Rule(
    id="LOCK-WRITER",
    title="Our lock was written by the uv that installs from it",
    source="manytask#958: the lock was written by another uv than the Dockerfile's, and the build failed",
    check=_check,
)
