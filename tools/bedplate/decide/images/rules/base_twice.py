"""The base that stands in several places is the same in all of them."""

import re
from collections.abc import Iterator

from bedplate.decide.dockerfile import instructions
from bedplate.decide.images.recipe import GITLAB_BUILD, NGC_VERSION, Recipe, Role
from bedplate.decide.images.rule import Rule
from bedplate.model.faults import Fault

_ENTRY = re.compile(
    r"""\s*(?P<item>-\s+)?(?P<key>[A-Z_]+):\s*(?P<quote>["']?)(?P<value>[^"'\s#]+)(?P=quote)\s*(#.*)?"""
)


def _check(recipe: Recipe) -> Iterator[Fault]:
    others = list(_others(recipe))
    for one in instructions(recipe.text):
        name, equals, default = (one.words or ("",))[0].partition("=")
        if one.name != "ARG" or not equals or name != _argument(recipe):
            continue
        for where, named in others:
            if named != default:
                found = f"ARG {name}={default}, but {recipe.inside(where)} says {named}"
                yield recipe.fault(one.line, found, "the bump forgot one of the two: ask upstream which")
        if recipe.image and recipe.role is Role.UPSTREAM and recipe.image.base != default:
            found = f"ARG {name}={default}, but base in {recipe.image.document.file} is {recipe.image.base}"
            yield recipe.fault(one.line, found, "the recipe was written for its own base: take that one")


def _others(recipe: Recipe) -> Iterator[tuple[str, str]]:
    """Where else the base of this Dockerfile is pinned, and to what: for GitHub's pipeline, and for GitLab's."""
    if named := recipe.texts.get(NGC_VERSION, "").strip():
        yield NGC_VERSION, named
    # Read by line: it is not known which of GitLab's own tags (!reference) the rest of the file has.
    entries: list[dict[str, tuple[int, str]]] = [{}]
    for number, line in enumerate(recipe.texts.get(GITLAB_BUILD, "").splitlines(), 1):
        if (found := _ENTRY.fullmatch(line)) is None:
            entries.append({})
            continue
        if found["item"]:
            entries.append({})
        entries[-1][found["key"]] = (number, found["value"])
    for entry in entries:
        if entry.get("FILE", (0, ""))[1] == recipe.file.rpartition("/")[2] and "BASE_IMAGE" in entry:
            number, named = entry["BASE_IMAGE"]
            yield f"{GITLAB_BUILD}:{number}", named


def _argument(recipe: Recipe) -> str:
    upstream = recipe.image.upstream if recipe.image else None
    return upstream.base_argument if upstream else "FROM_IMAGE_NAME"


RULE = Rule(
    id="BASE-TWICE",
    title="The base that stands in several places is the same in all of them",
    source="Megatron-LM: the base pin stands twice, and forgetting one is the most common failure of a bump",
    check=_check,
)
