"""What a recipe installs is what the definition expects."""

from collections.abc import Iterator

from bedplate.decide.images.recipe import Recipe, Role
from bedplate.decide.images.rule import Rule
from bedplate.model.faults import Fault

# argument of the Dockerfile -> name in `expects`
ARGUMENTS = {"NCCL_VERSION": "nccl", "CUDA_VERSION": "cuda", "TORCH_VERSION": "torch", "PYTORCH_VERSION": "torch"}


def _check(recipe: Recipe) -> Iterator[Fault]:
    if recipe.image is None or recipe.role is Role.PLAIN:
        return
    for before, step in zip(recipe.steps, recipe.steps[1:], strict=False):
        if before.instruction.name != "ARG":
            continue
        name = (before.instruction.words or ("",))[0].partition("=")[0]
        found, expected = step.known.get(name), recipe.image.expects.get(ARGUMENTS.get(name, ""))
        if found and expected and found != expected:
            said = f"{name} is {found}, but {recipe.image.document.file} expects {ARGUMENTS[name]} {expected}"
            yield recipe.fault(before.instruction.line, said, "give the argument, or correct expects")


RULE = Rule(
    id="VERSION-DISAGREES",
    title="What a recipe installs is what the definition expects",
    source="docker/Dockerfile.ci.dev replaces the base's NCCL: the name of the base does not say which one runs",
    check=_check,
)
