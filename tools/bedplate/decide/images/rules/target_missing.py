"""The stage that is built is named, and there is: else the last one is built, whatever it is for."""

from collections.abc import Iterator

from bedplate.decide.images.recipe import Recipe
from bedplate.decide.images.rule import Rule
from bedplate.model.faults import Fault


def _check(recipe: Recipe) -> Iterator[Fault]:
    names = [stage.name for stage in recipe.stages if not stage.name.isdigit()]
    if recipe.target is not None:
        if recipe.target.lower() not in names:
            found = f"target {recipe.target}: no stage of this name"
            yield recipe.fault(None, found, f"there: {', '.join(names) or 'none with a name'}")
        return
    for step in recipe.steps:
        secret = [flag for flag in step.instruction.flags if flag.startswith("--mount=type=secret")]
        if secret and step.stage and step.stage is recipe.stages[-1] and len(recipe.stages) > 1:
            found = f"stage {step.stage.name} is the last one, so it is built, and wants a secret ({secret[0]})"
            yield recipe.fault(step.instruction.line, found, f"name the target: one of {', '.join(names)}")
            return


RULE = Rule(
    id="TARGET-MISSING",
    title="The stage that is built is named, and there is",
    source="docker/Dockerfile.ci.dev: main is public, jet is NVIDIA's own and wants two secrets",
    check=_check,
)
