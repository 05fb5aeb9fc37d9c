"""uv installs what its lock says: without --locked a lock that does not fit is written anew, unseen."""

from collections.abc import Iterator

from bedplate.decide.images.recipe import Recipe
from bedplate.decide.images.rule import Rule
from bedplate.model.faults import Fault


def _check(recipe: Recipe) -> Iterator[Fault]:
    for _, commands in recipe.runs():
        for command in commands:
            words = command.arguments
            if command.program != "uv" or "--locked" in words:
                continue
            if "sync" in words[:2] or "run" in words[:1]:
                line = " ".join(command.words[:5])
                why = "--frozen does not compare lock and pyproject" if "--frozen" in words else "without --locked"
                yield recipe.fault(command.line, f"{line}: {why}", "write --locked: a lock that is stale is an error")


RULE = Rule(
    id="UV-UNLOCKED",
    title="uv installs what its lock says",
    source="docker/Dockerfile.ci.dev: `uv sync --only-group build`; uv's --locked and --frozen",
    check=_check,
)
