"""What a lock takes from git is asked for by commit: a branch or tag gives another one at the next lock."""

import re
from collections.abc import Iterator
from urllib.parse import parse_qs, urlsplit

from bedplate.decide.images.fetching import COMMIT
from bedplate.decide.images.recipe import LOCK, Recipe
from bedplate.decide.images.rule import Rule
from bedplate.model.faults import Fault


def _check(recipe: Recipe) -> Iterator[Fault]:
    for package in recipe.locked:
        source = package.get("source")
        address = source.get("git") if isinstance(source, dict) else None
        if not isinstance(address, str):
            continue
        parts = urlsplit(address)
        asked = [value for key in ("rev", "branch", "tag") for value in parse_qs(parts.query).get(key, [])]
        at = recipe.lock_line(package["name"])
        if not COMMIT.fullmatch(parts.fragment):
            found = f"{package['name']}: locked at no full commit ({address})"
            yield Fault(recipe.inside(LOCK), at, found, "lock it again")
        elif not any(re.fullmatch(r"[0-9a-f]{7,40}", value) for value in asked):
            by = f'"{asked[0]}"' if asked else "the default branch"
            found = f"{package['name']}: asked for by {by}, locked at {parts.fragment}"
            yield Fault(recipe.inside(LOCK), at, found, "ask for the commit: rev = 40 hexadecimal digits")


RULE = Rule(
    id="LOCK-BRANCH",
    title="What a lock takes from git is asked for by commit",
    source="Megatron-LM's uv.lock: FlashMLA rev=nv_dev, a branch, locked to b7643bd5",
    check=_check,
)
