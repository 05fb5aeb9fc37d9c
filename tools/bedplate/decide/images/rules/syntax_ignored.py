"""A `# syntax=` line that the builder heeds: behind another comment it is a comment itself."""

import re
from collections.abc import Iterator

from bedplate.decide.images.recipe import Recipe
from bedplate.decide.images.rule import Rule
from bedplate.model.faults import Fault

DIRECTIVE = re.compile(r"\s*#\s*([A-Za-z]+)\s*=\s*(\S.*?)\s*$")
_NAMES = ("syntax", "escape", "check")


def heeded(text: str) -> tuple[int, str] | None:
    """Line and value of the syntax directive that a builder heeds: directives end at the first other line."""
    for number, line in enumerate(text.splitlines(), 1):
        found = DIRECTIVE.match(line)
        if found is None or found[1].lower() not in _NAMES:
            return None
        if found[1].lower() == "syntax":
            return number, found[2]
    return None


def _check(recipe: Recipe) -> Iterator[Fault]:
    taken = heeded(recipe.text)
    for number, line in enumerate(recipe.text.splitlines(), 1):
        found = DIRECTIVE.match(line)
        if found and found[1].lower() == "syntax" and (taken is None or taken[0] != number):
            what = f"# syntax={found[2]} stands behind another line, so the builder's own frontend reads the file"
            yield recipe.fault(number, what, "make it the first line, or record the builder's version and remove it")


RULE = Rule(
    id="SYNTAX-IGNORED",
    title="A syntax line is one that the builder heeds",
    source="docker/Dockerfile.ci.dev of core_v0.19.0 has it on line 2, behind a comment",
    check=_check,
)
