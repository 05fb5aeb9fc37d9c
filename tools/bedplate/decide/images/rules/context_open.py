"""A context that is copied whole says what is left out: .git and what lies about make another image each time."""

from collections.abc import Iterator

from bedplate.decide.images.recipe import Recipe, Role
from bedplate.decide.images.rule import Rule
from bedplate.model.faults import Fault


def _check(recipe: Recipe) -> Iterator[Fault]:
    if recipe.role is Role.OWN or {".dockerignore", ".containerignore"} & recipe.files:
        return  # a definition's context is hashed, file by file, and is all that the builder gets
    for step in recipe.steps:
        one = step.instruction
        if one.name in {"COPY", "ADD"} and not any(flag.startswith("--from=") for flag in one.flags):
            for source in step.sources:
                if source in {".", "./", "/", "*"}:
                    found = f"{one.name} {source} takes the whole context, and there is no .dockerignore"
                    yield recipe.fault(one.line, found, "name what is needed, or write .dockerignore (.git first)")


RULE = Rule(
    id="CONTEXT-OPEN",
    title="A context that is copied whole says what is left out",
    source="Megatron-LM has no .dockerignore",
    check=_check,
)
