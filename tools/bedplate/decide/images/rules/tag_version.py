"""The package's version is that of the tag: where it is not, only the commit says what it is."""

import re
from collections.abc import Iterator

from bedplate.decide.images.recipe import PACKAGE_INFO, Recipe, Role
from bedplate.decide.images.rule import Rule
from bedplate.model.faults import Fault

_PARTS = ("MAJOR", "MINOR", "PATCH", "PRE_RELEASE")


def _check(recipe: Recipe) -> Iterator[Fault]:
    text = recipe.texts.get(PACKAGE_INFO)
    if text is None or not (recipe.image and recipe.image.upstream and recipe.role is Role.UPSTREAM):
        return
    upstream = recipe.image.upstream
    parts = {name: _part(text, name) for name in _PARTS}
    version = ".".join(parts[name] for name in _PARTS[:3]) + parts["PRE_RELEASE"]
    tagged = re.search(r"[0-9]+(\.[0-9]+)+\w*$", upstream.tag)
    expected = recipe.image.expects.get("megatron-core")
    place = Fault(recipe.inside(PACKAGE_INFO), None, "")
    if tagged and tagged[0] != version:
        found = f"the package says {version}, the tag {upstream.tag}"
        yield Fault(place.file, None, found, "go by the commit alone, and expect what the package says")
    if expected and expected != version:
        found = f"the package says {version}, expects says {expected} ({recipe.image.document.file})"
        yield Fault(place.file, None, found, "another tag, or another version to expect")


def _part(text: str, name: str) -> str:
    found = re.search(rf"^{name}\s*=\s*['\"]?([0-9a-z]*)", text, re.MULTILINE)
    return found[1] if found else "" if name == "PRE_RELEASE" else "?"


RULE = Rule(
    id="TAG-VERSION",
    title="The package's version is that of the tag, and the expected one",
    source="Megatron-LM: core_v0.19.0 has the package 0.19.1, core_v0.17.0 has 0.17.0rc0",
    check=_check,
)
