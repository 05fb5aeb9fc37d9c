"""PyTorch, CUDA, NCCL and Transformer Engine stay those of the base image: an index's builds are others."""

from collections.abc import Iterator

from bedplate.decide.images.core import is_core
from bedplate.decide.images.fetching import local, normal, pip_installs
from bedplate.decide.images.recipe import Recipe
from bedplate.decide.images.rule import Rule
from bedplate.decide.images.shell import Command
from bedplate.model.faults import Fault

_REMEDY = "leave it to the base image: --no-install-package, or exclude it from the lock"


def _check(recipe: Recipe) -> Iterator[Fault]:
    names = sorted({str(package["name"]) for package in recipe.locked if _installed(package)})
    locked = [name for name in names if is_core(name)]
    for _, commands in recipe.runs():
        for each in pip_installs(commands):
            for wanted in each.wanted:
                if not local(wanted) and is_core(normal(wanted)):
                    yield recipe.fault(each.line, f"pip install {wanted} replaces the image's own", _REMEDY)
        for command in commands:
            if command.program == "uv" and "sync" in command.arguments[:2]:
                left = [] if _partly(command) else [name for name in locked if name not in _excluded(command)]
                if left:
                    found = f"uv sync installs {', '.join(left)} of the lock over the image's own"
                    yield recipe.fault(command.line, found, _REMEDY)


def _installed(package: dict[str, object]) -> bool:
    """Whether a locked package comes from an index, and on Linux at all (an override can keep it out)."""
    source = package.get("source")
    markers = package.get("resolution-markers")
    never = (
        isinstance(markers, list) and all("sys_platform == 'never'" in str(marker) for marker in markers) and markers
    )
    return isinstance(source, dict) and "registry" in source and not never


def _excluded(command: Command) -> set[str]:
    words = command.arguments
    found = {words[index + 1] for index, word in enumerate(words[:-1]) if word == "--no-install-package"}
    return found | {word.partition("=")[2] for word in words if word.startswith("--no-install-package=")}


def _partly(command: Command) -> bool:
    return any(word.startswith(("--only-group", "--only-dev", "--no-install-")) and "package" not in word
               for word in command.arguments if word != "--no-install-project")  # fmt: skip


RULE = Rule(
    id="CORE-REPLACED",
    title="PyTorch, CUDA, NCCL and Transformer Engine stay those of the base image",
    source="docker/Dockerfile.ci.dev: --no-install-package torch, torchvision, triton, nvidia-*-cu12",
    check=_check,
)
