"""What a lock holds is a wheel: what is compiled at the build depends on the compiler that is there."""

from collections.abc import Iterator

from bedplate.decide.images.recipe import LOCK, Recipe
from bedplate.decide.images.rule import Rule
from bedplate.model.faults import Fault


def _check(recipe: Recipe) -> Iterator[Fault]:
    for package in recipe.locked:
        source = package.get("source")
        kind = next(iter(source), "") if isinstance(source, dict) else ""
        if kind == "git" or (kind == "registry" and "wheels" not in package and "sdist" in package):
            why = "from git" if kind == "git" else "no wheel"
            found = f"{package['name']} {package.get('version', '')} ({why}) is built during the build"
            remedy = "build it once, to a wheel with a hash, or as a layer of kind source"
            yield Fault(recipe.inside(LOCK), recipe.lock_line(package["name"]), found, remedy)


RULE = Rule(
    id="LOCK-BUILT",
    title="What a lock holds is a wheel",
    source="Megatron-LM's uv.lock: TransformerEngine, mamba, FlashMLA, built without isolation; not reproducible",
    check=_check,
)
