"""LAB STAND-IN for the torch that an image brings: this machine's environment of images/training, read-only in hosts.

5 GB are no image for a lab. A host sees the environment and the Python that it was made with at their own paths, where
BEDPLATE_LAB_TORCH names it when the lab comes up; a job mounts them into its container, beside the host's own shared
libraries, which the lab's image has none of. The program itself is in the image.
"""

import os
from collections.abc import Sequence
from pathlib import Path

VARIABLE = "BEDPLATE_LAB_TORCH"
LIBRARIES = ("/usr/lib/x86_64-linux-gnu", "/usr/lib64")


def environment() -> Path | None:
    named = os.environ.get(VARIABLE)
    return Path(named) if named else None


def python(place: Path) -> Path:
    """The directory of the Python that an environment stands on; /usr: the hosts have Debian's own."""
    lines = (line.partition("=") for line in (place / "pyvenv.cfg").read_text().splitlines())
    return Path(next(value.strip() for name, _, value in lines if name.strip() == "home")).parent


def nspawn_options() -> Sequence[str]:
    place = environment()
    return [f"--bind-ro={path}" for path in _paths(place) if path != Path("/usr")] if place else []


def mounts(place: Path) -> list[str]:
    """What a container gets."""
    own = [path for path in _paths(place) if path != Path("/usr")]
    debians = [] if len(own) == len(_paths(place)) else [Path("/usr/bin"), Path("/usr/lib/python3.13")]
    return [f"{path}:{path}:ro" for path in [*own, *debians, *map(Path, LIBRARIES)]]


def _paths(place: Path) -> list[Path]:
    return [place, python(place)]
