"""What COPY and ADD take is there: a clean clone may lack what the upstream's own pipeline puts beside it."""

import fnmatch
import re
from collections.abc import Iterator

from bedplate.decide.images.recipe import Recipe
from bedplate.decide.images.rule import Rule
from bedplate.model.faults import Fault


def _check(recipe: Recipe) -> Iterator[Fault]:
    for step in recipe.steps:
        one = step.instruction
        if any(flag.startswith("--from=") for flag in one.flags):
            continue
        sources = step.sources if one.name in {"COPY", "ADD"} else _bound(one.flags) if one.name == "RUN" else []
        for source in sources:
            if "$" in source or re.match(r"[a-z+]+://|git@", source):
                continue
            path = re.sub(r"^(\./|/)+|/+$", "", source)
            if path not in {"", "."} and not _there(recipe, path):
                found = f"{one.name} takes {source}, which is not in {recipe.folder or 'the context'}"
                yield recipe.fault(one.line, found, _remedy(path))


def _bound(flags: list[str]) -> list[str]:
    """What RUN --mount=type=bind takes from the context."""
    found = []
    for flag in flags:
        said = dict(re.findall(r"(\w+)=([^,\s]+)", flag.removeprefix("--mount=")))
        if flag.startswith("--mount=") and said.get("type", "bind") == "bind" and "from" not in said:
            found += [said[key] for key in ("source", "src") if key in said]
    return found


def _there(recipe: Recipe, path: str) -> bool:
    if re.search(r"[*?\[]", path):
        return any(fnmatch.fnmatchcase(name, path) for name in recipe.files)
    return path in recipe.files


def _remedy(path: str) -> str:
    if path == "assets":
        return "the upstream's pipeline downloads test data there: make it, empty (upstream.empty in image.yml does)"
    return "put it there, or correct the path"


RULE = Rule(
    id="COPY-MISSING",
    title="What COPY takes is there",
    source="docker/Dockerfile.ci.dev: `COPY assets/`, which is not in the repository",
    check=_check,
)
