"""Nothing is built from what an earlier build left behind on this machine."""

from collections.abc import Iterator

from bedplate.decide.images.recipe import Recipe
from bedplate.decide.images.rule import Rule
from bedplate.model.faults import Fault


def _check(recipe: Recipe) -> Iterator[Fault]:
    for step in recipe.steps:
        one = step.instruction
        if one.name == "RUN" and any("type=cache" in flag for flag in one.flags if flag.startswith("--mount=")):
            found = "RUN with a cache mount: what lies in the cache of this machine enters the image"
            yield recipe.fault(one.line, found, "build with an empty cache: --no-cache, on a builder of its own")


RULE = Rule(
    id="CACHE-MOUNT",
    title="Nothing is built from what an earlier build left behind",
    source="docker/Dockerfile.ci.dev: /root/.cache/uv; Megatron's pipeline says that its layers are not reproducible",
    check=_check,
)
