"""What is installed stands in the lock: an exact version alone has no hash, and the lock does not know of it."""

from collections.abc import Iterator

from bedplate.decide.images.fetching import EXACT, local, normal, pip_installs
from bedplate.decide.images.recipe import LOCK, Recipe
from bedplate.decide.images.rule import Rule
from bedplate.model.faults import Fault


def _check(recipe: Recipe) -> Iterator[Fault]:
    locked = {str(package["name"]): str(package.get("version", "")) for package in recipe.locked}
    for _, commands in recipe.runs():
        for each in pip_installs(commands):
            for wanted in () if each.hashed else each.wanted:
                if local(wanted) or not EXACT.fullmatch(wanted):
                    continue  # PIP-UNPINNED tells of those
                there = locked.get(normal(wanted))
                said = f"{LOCK} has {normal(wanted)} {there}" if there else f"not in {LOCK}" if locked else "no lock"
                found = f"pip install {wanted} is outside the lock ({said}), so no hash pins it"
                yield recipe.fault(each.line, found, "put it into the lock: uv sync --locked")


RULE = Rule(
    id="OUTSIDE-LOCK",
    title="What is installed stands in the lock",
    source="docker/Dockerfile.ci.dev: nvidia-nvshmem-cu13==3.4.5",
    check=_check,
)
