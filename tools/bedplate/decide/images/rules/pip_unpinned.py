"""What pip installs has an exact version: what is newest changes by itself."""

from collections.abc import Iterator

from bedplate.decide.images.fetching import COMMIT, EXACT, PipInstall, local, pip_installs
from bedplate.decide.images.recipe import Recipe
from bedplate.decide.images.rule import Rule
from bedplate.model.faults import Fault


def _check(recipe: Recipe) -> Iterator[Fault]:
    for _, commands in recipe.runs():
        for each in pip_installs(commands):
            for wanted, why in _open(each):
                yield recipe.fault(each.line, f"pip install {wanted}: {why}", "put it into the lock: uv sync --locked")


def _open(each: PipInstall) -> Iterator[tuple[str, str]]:
    for wanted in each.wanted:
        if local(wanted):
            if not each.without_dependencies:
                yield wanted, "what it depends on is chosen at the build (--no-deps leaves it alone)"
        elif "git+" in wanted or "://" in wanted:
            if not COMMIT.search(wanted) and "#sha256=" not in wanted:
                yield wanted, "neither commit nor hash"
        elif not EXACT.fullmatch(wanted):
            yield wanted, "no exact version"
    if not each.hashed:
        for file in each.files:
            yield f"-r {file}", "without --require-hashes"


RULE = Rule(
    id="PIP-UNPINNED",
    title="What pip installs has an exact version",
    source="docker/Dockerfile.ci.dev: DeepEP's `uv pip install .`, stage jet's jet-client~=4.0",
    check=_check,
)
