"""What is cloned is checked out at a full commit: branches and tags are moved."""

import re
from collections.abc import Iterator

from bedplate.decide.images.fetching import COMMIT
from bedplate.decide.images.recipe import Recipe
from bedplate.decide.images.rule import Rule
from bedplate.model.faults import Fault

_PINNING = ("checkout", "fetch", "reset", "switch")
_GIT_ADDRESS = re.compile(r"(https?|git|ssh)://|git@")


def _check(recipe: Recipe) -> Iterator[Fault]:
    for _, commands in recipe.runs():
        asked: list[tuple[int, str]] = []
        for command in commands:
            words = [word for word in command.arguments if word != "-C"]
            if command.program != "git":
                continue
            if "clone" in words[:3]:
                address = next((word for word in words if _GIT_ADDRESS.match(word)), "")
                asked.append((command.line, address or " ".join(words)))
            elif asked and any(word in _PINNING for word in words[:3]) and any(map(COMMIT.fullmatch, words)):
                asked.pop()
        for line, address in asked:
            yield recipe.fault(line, f"git clone {address}: at no full commit", "git checkout 40 hexadecimal digits")
    for step in recipe.steps:
        for source in step.sources if step.instruction.name == "ADD" else ():
            address, _, at = source.partition("#")
            if _GIT_ADDRESS.match(source) and address.endswith(".git") and not COMMIT.fullmatch(at.partition(":")[0]):
                yield recipe.fault(step.instruction.line, f"ADD {source}: at no full commit", "write …git#COMMIT")


RULE = Rule(
    id="GIT-UNPINNED",
    title="What is cloned is checked out at a full commit",
    source="docker/Dockerfile.ci.dev: DeepEP, whose commit is given; a clone without one follows a branch",
    check=_check,
)
