"""The recipe of an image as it can be judged without a builder: stages, commands, context, locks, what is said of it.

- Only what the target is made of counts: a later stage that is not built leaves nothing open.
- Variables hold what the builder will be given, else their defaults; what nobody says stays as it is written.
- `files` are all paths of the context, directories too; `texts` those of its files that rules read.
"""

import json
import re
import shlex
import tomllib
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass, field, replace
from enum import StrEnum
from functools import cached_property
from typing import Any

from bedplate.decide.dockerfile import Instruction, instructions
from bedplate.decide.images.shell import Command, commands, expanded
from bedplate.model.faults import Fault
from bedplate.model.image import UNKNOWN, ImageDefinition

LOCK, PROJECT = "uv.lock", "pyproject.toml"
NGC_VERSION = "docker/.ngc_version.dev"
GITLAB_BUILD = ".gitlab/stages/01.build.yml"
PACKAGE_INFO = "megatron/core/package_info.py"
READ = (LOCK, PROJECT, NGC_VERSION, GITLAB_BUILD, PACKAGE_INFO, ".dockerignore", ".containerignore")
_SHELLS = ("sh", "bash", "dash", "ash")
_FLAGS = re.compile(r"\s*RUN(?=[\s\\])(?:\s|\\\n|--[a-z]+(?:=(?:\"[^\"]*\"|\S)*)?(?=[\s\\]))*", re.IGNORECASE)


class Role(StrEnum):
    """Whose Dockerfile it is: one without a definition, a definition's own, its upstream's; or a script of a RUN."""

    PLAIN = "plain"
    OWN = "own"
    UPSTREAM = "upstream"
    SCRIPT = "script"


@dataclass(frozen=True)
class Commits:
    """What a checkout's git says; tag: the commit of the definition's tag, None: it has no such tag."""

    folder: str
    head: str
    tag: str | None = None


@dataclass(frozen=True)
class Stage:
    """base: what stands behind FROM, variables put in; external: it is no earlier stage, nor `scratch`."""

    index: int
    name: str
    base: str
    written: str
    line: int
    external: bool


@dataclass(frozen=True)
class Step:
    """One instruction, in its stage, with the variables that are known there."""

    instruction: Instruction
    stage: Stage | None
    known: Mapping[str, str] = field(repr=False)

    @property
    def sources(self) -> list[str]:
        """Of COPY and ADD: what is copied, variables put in; what a here-document holds is no file."""
        one = self.instruction
        text = " ".join(word for word in one.words if not word.startswith("--"))
        if text.startswith("["):
            try:
                words = [str(word) for word in json.loads(text)]
            except ValueError:
                words = []
        else:
            words = text.split()
        return [expanded(word, self.known) for word in words[:-1] if not word.startswith("<<")]

    @cached_property
    def commands(self) -> list[Command]:
        """Of RUN: what the shell will do, here-documents for a shell too."""
        if self.instruction.name != "RUN":
            return []
        text = "\n".join(line for _, line in self.instruction.lines)
        flags = _FLAGS.match(text)
        begin = flags.end() if flags else 0
        numbers = [number for number, _ in self.instruction.lines][text.count("\n", 0, begin) :]
        rest = text[begin:]
        if rest.startswith("["):
            try:
                return [Command(self.instruction.line, tuple(map(str, json.loads(rest.replace("\\\n", "")))), 0)]
            except (ValueError, TypeError):
                return []
        found = commands(list(zip(numbers, rest.split("\n"), strict=False)), self.known)
        first = next((command.program for command in found), "")
        if first not in _SHELLS and first not in {"", "<"}:
            return found
        found = [command for command in found if command.program != "<"]
        for number, document in enumerate(self.instruction.documents, 1):
            inside = commands(document, self.known)
            found += [Command(each.line, each.words, each.pipeline + number * 100_000) for each in inside]
        return found


@dataclass(frozen=True)
class Recipe:
    """One Dockerfile and all that is known around it."""

    file: str
    role: Role
    steps: tuple[Step, ...]
    stages: tuple[Stage, ...]
    text: str = field(repr=False)
    target: str | None = None
    files: frozenset[str] = frozenset()
    texts: Mapping[str, str] = field(default_factory=dict, repr=False)
    image: ImageDefinition | None = None
    commits: Commits | None = None
    folder: str = ""  # of the context, as messages call it
    below: str = field(default="", repr=False)  # the uv.lock of the recipe whose stage it stands on

    def runs(self) -> Iterator[tuple[Step, list[Command]]]:
        for step in self.steps:
            if found := step.commands:
                yield step, found

    def fault(self, line: int | None, found: str, remedy: str) -> Fault:
        return Fault(self.file, line, found, remedy)

    def inside(self, path: str) -> str:
        """A file of the context, as messages call it."""
        return f"{self.folder}/{path}" if self.folder else path

    @cached_property
    def locked(self) -> list[dict[str, Any]]:
        """The packages of the context's uv.lock; none where there is none that can be read."""
        try:
            packages = tomllib.loads(self.texts.get(LOCK, "")).get("package", [])
        except tomllib.TOMLDecodeError:
            return []
        return [package for package in packages if isinstance(package, dict) and isinstance(package.get("name"), str)]

    @cached_property
    def project(self) -> dict[str, Any]:
        """The context's pyproject.toml."""
        try:
            return tomllib.loads(self.texts.get(PROJECT, ""))
        except tomllib.TOMLDecodeError:
            return {}

    def lock_line(self, name: str) -> int | None:
        """The line of a package in uv.lock."""
        before = ""
        for number, line in enumerate(self.texts.get(LOCK, "").splitlines(), 1):
            if before == "[[package]]" and line == f'name = "{name}"':
                return number
            before = line
        return None


def scripts(recipe: Recipe) -> list[str]:
    """The shell scripts of the context that a RUN starts, as far as their names tell."""
    taken: set[str] = set()
    started: set[str] = set()
    for step in recipe.steps:
        one = step.instruction
        words = list(step.sources) if one.name in {"COPY", "ADD"} else []
        words += re.findall(r"(?:source|src)=([^,\s]+)", " ".join(one.flags)) if one.name == "RUN" else []
        taken |= {word.removeprefix("./").rstrip("/") for word in words}
        started |= {word.rpartition("/")[2] for command in step.commands for word in command.words}
    return sorted(
        path
        for path in recipe.files
        if path.endswith(".sh")
        and path.rpartition("/")[2] in started
        and any(_inside(path, folder) for folder in taken)
    )


def _inside(path: str, taken: str) -> bool:
    return taken in {path, "", "."} or path.startswith(f"{taken}/")


def script_recipe(recipe: Recipe, path: str, text: str) -> Recipe:
    """A script as the RUN that it is; what the Dockerfile tells it is not known."""
    lines = tuple(enumerate(text.splitlines(), 1))
    one = Instruction(1, "RUN", (), ((1, "RUN <<SCRIPT"),), (lines,))
    return replace(
        recipe,
        file=recipe.inside(path),
        role=Role.SCRIPT,
        target=None,
        steps=(Step(one, None, {}),),
        stages=(),
        text="",
    )


def own_arguments(image: ImageDefinition) -> dict[str, str]:
    """What the builder gives a definition's own Dockerfile."""
    if image.upstream:
        base = f"{image.called}@{image.upstream.target}"  # the upstream stage, built just before
        return {**image.arguments, "BASE": base}
    return {**image.arguments, "BASE": _base(image)}


def upstream_arguments(image: ImageDefinition) -> dict[str, str]:
    """What the builder gives the upstream Dockerfile: the base with its digest, by the name that it has there."""
    upstream = image.upstream
    return {**upstream.arguments, upstream.base_argument: _base(image)} if upstream else {}


def _base(image: ImageDefinition) -> str:
    # A digest that is unknown is told once, by the rule about the definition.
    return image.base if image.base_digest == UNKNOWN else f"{image.base}@{image.base_digest}"


def read_recipe(
    text: str,
    file: str,
    *,
    role: Role = Role.PLAIN,
    target: str | None = None,
    given: Mapping[str, str] | None = None,
    files: Collection[str] = (),
    texts: Mapping[str, str] | None = None,
    image: ImageDefinition | None = None,
    commits: Commits | None = None,
    folder: str = "",
) -> Recipe:
    """Read a Dockerfile, whatever stands in it; what the target is not made of is left out."""
    steps, stages = _steps(text, given or {})
    wanted = _wanted(steps, stages, target)
    kept = tuple(step for step in steps if step.stage is None or step.stage.index in wanted)
    left = tuple(stage for stage in stages if stage.index in wanted)
    return Recipe(
        file, role, kept, left, text, target, frozenset(files), texts or {}, image, commits, folder
    )  # fmt: skip


def _steps(text: str, given: Mapping[str, str]) -> tuple[list[Step], list[Stage]]:
    steps: list[Step] = []
    stages: list[Stage] = []
    globally: dict[str, str] = {}
    known: dict[str, str] = globally
    ends: dict[int, dict[str, str]] = {}  # what a stage leaves to those built on it
    for one in instructions(text):
        if one.name == "FROM":
            written = one.arguments[0] if one.arguments else ""
            base = expanded(written, globally)
            earlier = next((stage for stage in stages if stage.name == base.lower()), None)
            rest = [word.lower() for word in one.arguments[1:]]
            name = rest[1] if len(rest) > 1 and rest[0] == "as" else str(len(stages))
            external = earlier is None and base.lower() != "scratch"
            stages.append(Stage(len(stages), name, base, written, one.line, external))
            known = dict(ends.get(earlier.index, {})) if earlier else {}
            ends[len(stages) - 1] = known
        steps.append(Step(one, stages[-1] if stages else None, dict(known)))
        if one.name in {"ARG", "ENV"}:
            _remember(one, known, globally, given)
    return steps, stages


def _remember(one: Instruction, known: dict[str, str], globally: Mapping[str, str], given: Mapping[str, str]) -> None:
    try:
        words = shlex.split(" ".join(one.words))
    except ValueError:
        words = list(one.words)
    if one.name == "ENV" and words and "=" not in words[0]:
        words = [f"{words[0]}={' '.join(words[1:])}"]
    for word in words:
        name, equals, value = word.partition("=")
        value = expanded(value, known)
        if one.name == "ENV" or (equals and name not in given):
            known[name] = value
        elif name in given:
            known[name] = given[name]
        elif name in globally:
            known[name] = globally[name]


def _wanted(steps: list[Step], stages: list[Stage], target: str | None) -> set[int]:
    """The stages that the target is made of; all of them where nobody names a target that there is."""
    by_name = {stage.name: stage.index for stage in stages} | {str(stage.index): stage.index for stage in stages}
    if target is None or target.lower() not in by_name:
        return {stage.index for stage in stages}
    wanted: set[int] = set()
    left = [by_name[target.lower()]]
    while left:
        index = left.pop()
        if index in wanted:
            continue
        wanted.add(index)
        if not stages[index].external and stages[index].base.lower() in by_name:
            left.append(by_name[stages[index].base.lower()])
        for step in steps:
            if step.stage is stages[index]:
                left += [by_name[name] for name in (each.lower() for each in froms(step)) if name in by_name]
    return wanted


def froms(step: Step) -> list[str]:
    """What --from= of COPY and ADD, and from= of RUN --mount name, variables put in."""
    return [
        expanded(name, step.known)
        for flag in step.instruction.flags
        for name in re.findall(r"(?:^--|,)from=([^,\s]+)", flag.replace("--mount=", ","))
    ]
