"""What is downloaded is compared with a sha256 that stands in the recipe, in the same RUN."""

import re
from collections.abc import Iterator, Sequence

from bedplate.decide.images.fetching import Download, downloads
from bedplate.decide.images.recipe import Recipe, Role
from bedplate.decide.images.rule import Rule
from bedplate.decide.images.shell import Command
from bedplate.model.faults import Fault

_CHECKS = ("sha256sum", "sha512sum", "sha384sum", "shasum")
_HASH = re.compile(r"\b[0-9a-f]{64}\b|\b[0-9a-f]{96}\b|\b[0-9a-f]{128}\b")
_SHELLS = ("sh", "bash", "dash", "python", "python3")
_ADDRESS = re.compile(r"https?://|ftp://", re.IGNORECASE)


def _check(recipe: Recipe) -> Iterator[Fault]:
    for _, commands in recipe.runs():
        proven = _proven(commands)
        for each in downloads(commands):
            if each.output and each.output.rpartition("/")[2] in proven:
                continue
            into = next((c.program for c in commands if c.pipeline == each.pipeline and c.program in _SHELLS), None)
            yield recipe.fault(each.line, _said(each, into), "compare it with a sha256 in this RUN, or COPY it")
    for step in recipe.steps if recipe.role is not Role.OWN else ():  # DEFINITION-BASE tells of those
        one = step.instruction
        if one.name == "ADD" and not any(flag.startswith("--checksum=sha256:") for flag in one.flags):
            for source in step.sources:
                if _ADDRESS.match(source) and not source.partition("#")[0].endswith(".git"):
                    yield recipe.fault(one.line, f"ADD {source}: no --checksum", "write --checksum=sha256:…")


def _proven(commands: Sequence[Command]) -> set[str]:
    """The files that are compared with a hash that is written out."""
    checking = {command.pipeline for command in commands if command.program in _CHECKS}
    names: set[str] = set()
    for command in commands:
        text = " ".join(command.words)
        if command.pipeline in checking and _HASH.search(text):
            names |= {word.lstrip("*").rpartition("/")[2] for word in re.split(r"\s+|\\n", text)}
    return names - {"", *_CHECKS}


def _said(each: Download, into: str | None) -> str:
    if into:
        return f"{each.program} {each.address} is run by {into}, unread"
    return f"{each.program} {each.address}: nothing compares it with a hash"


RULE = Rule(
    id="DOWNLOAD-UNCHECKED",
    title="What is downloaded is compared with a hash",
    source="docker/Dockerfile.ci.dev: uv's installer, yq, cuda-keyring; the main branch has a sha256 for uv",
    check=_check,
)
