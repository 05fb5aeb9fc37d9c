"""A wheel of the package index against the commit that an image is built from: the same code, file by file?

CPU tests run the wheel, the image has the commit; where they part stands in the build record. Files of the wheel that
the commit has elsewhere or not at all (what a build makes, what an index wants) are told by name, not judged.
"""

import tomllib
from collections.abc import Mapping
from typing import Any

from bedplate.decide.images.packages import normal
from bedplate.model.canonical import DIGEST

METADATA = ".dist-info/"  # of a wheel: the index's own words about it
COMPILED = (".so", ".pyd")


def project_name(pyproject: str) -> str | None:
    """The name of the package that a pyproject.toml is of, as indexes write it; None: it does not say."""
    try:
        name = tomllib.loads(pyproject)["project"]["name"]
    except (tomllib.TOMLDecodeError, KeyError, TypeError):
        return None
    return normal(name) if isinstance(name, str) else None


def locked_wheels(lock: str, name: str) -> tuple[str, frozenset[str]] | None:
    """The version that a uv.lock has of a package, and the sha256 of its wheels; None: it has none of an index."""
    try:
        for package in tomllib.loads(lock).get("package", []):
            if normal(package["name"]) == name and (wheels := package.get("wheels")):
                hashes = {str(wheel["hash"]) for wheel in wheels}
                return str(package["version"]), frozenset(each for each in hashes if DIGEST.fullmatch(each))
    except (tomllib.TOMLDecodeError, KeyError, TypeError, AttributeError):
        return None
    return None


def wheel_difference(wheel: Mapping[str, str], commit: Mapping[str, str]) -> dict[str, Any]:
    """What a build record says of a wheel and a commit; both: path -> sha256 of the file, by the path in the package.

    same: how many files are equal; differ: in both, with other bytes; wheel_only, compiled and commit_only: in one of
    them. Of the commit only the folders count that the wheel has.

    Raises:
        ValueError: they have no file in common, and are compared by mistake.
    """
    packed = {path: digest for path, digest in wheel.items() if METADATA not in path}
    tops = {path.partition("/")[0] for path in packed if "/" in path}
    known = {path: digest for path, digest in commit.items() if path.partition("/")[0] in tops}
    both = packed.keys() & known.keys()
    if not both:
        raise ValueError(f"no file of the wheel ({len(packed)}) is in the commit ({len(commit)})")
    alone = packed.keys() - known.keys()
    return {
        "same": sum(packed[path] == known[path] for path in both),
        "differ": {
            path: {"wheel": packed[path], "commit": known[path]} for path in sorted(both) if packed[path] != known[path]
        },
        "compiled": sorted(path for path in alone if path.endswith(COMPILED)),
        "wheel_only": sorted(path for path in alone if not path.endswith(COMPILED)),
        "commit_only": sorted(known.keys() - packed.keys()),
    }  # fmt: skip
