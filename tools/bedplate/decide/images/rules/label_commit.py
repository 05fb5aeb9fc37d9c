"""A label that names a commit names the one that is built from."""

import re
import shlex
from collections.abc import Iterator

from bedplate.decide.images.recipe import Recipe
from bedplate.decide.images.rule import Rule
from bedplate.decide.images.shell import expanded
from bedplate.model.faults import Fault

_LABELS = ("org.opencontainers.image.revision", "org.label-schema.vcs-ref", "vcs-ref", "git-commit", "commit")


def _check(recipe: Recipe) -> Iterator[Fault]:
    commit = recipe.commits.head if recipe.commits else None
    for step in recipe.steps:
        if step.instruction.name != "LABEL":
            continue
        try:
            words = shlex.split(" ".join(step.instruction.words))
        except ValueError:
            continue
        for word in words:
            key, _, value = word.partition("=")
            value = expanded(value, step.known)
            if key.lower() not in _LABELS or not re.fullmatch(r"[0-9a-f]{7,40}", value) or commit is None:
                continue
            if not commit.startswith(value):
                found = f"LABEL {key}={value}, but the checkout is at {commit}"
                yield recipe.fault(step.instruction.line, found, "give it as a build argument, from git rev-parse HEAD")


RULE = Rule(
    id="LABEL-COMMIT",
    title="A label that names a commit names the one that is built from",
    source="core_v0.19.0's package says 0.19.1: what an image is made of is known by its commit",
    check=_check,
)
