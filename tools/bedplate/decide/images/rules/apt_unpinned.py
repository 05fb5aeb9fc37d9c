"""What apt installs has an exact version: an archive's newest changes by itself."""

from collections.abc import Iterator

from bedplate.decide.images.fetching import apt_installs
from bedplate.decide.images.recipe import Recipe
from bedplate.decide.images.rule import Rule
from bedplate.model.faults import Fault


def _check(recipe: Recipe) -> Iterator[Fault]:
    for _, commands in recipe.runs():
        for line, packages in apt_installs(commands):
            if free := [package for package in packages if "=" not in package]:
                found = f"apt-get install {' '.join(free)}: no exact version"
                yield recipe.fault(line, found, "write NAME=VERSION, from an archive that keeps it (a snapshot)")


RULE = Rule(
    id="APT-UNPINNED",
    title="What apt installs has an exact version",
    source="docker/Dockerfile.ci.dev: gettext, python3-venv, psmisc, uuid-runtime, rdma-core, libibverbs-dev",
    check=_check,
)
