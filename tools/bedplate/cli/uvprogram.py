"""Where uv is: on PATH, or where tools/setup keeps the one that it got."""

import os
import shutil
from collections.abc import Iterator
from pathlib import Path

from bedplate.model.faults import BedplateError, Refused
from bedplate.process import run

SHARED = Path("/var/cache/bedplate")
DEADLINE_S = 30.0


def put_on_path() -> None:
    """See to it that this process, and what it starts, finds a uv that works.

    Raises:
        Refused: there is none.
    """
    for program in _candidates():
        if _answers(program):
            if program != "uv":
                os.environ["PATH"] = os.pathsep.join([str(Path(program).parent), os.environ.get("PATH", "")])
            return
    looked = ", ".join(str(folder) for folder in _folders())
    raise Refused(f"no uv that works: looked on PATH and in {looked} (run: tools/setup, or put uv on PATH)")


def _folders() -> list[Path]:
    """Where tools/setup puts what it gets: for everybody, or for who may not write there."""
    return [SHARED, Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "bedplate"]


def _candidates() -> Iterator[str]:
    if shutil.which("uv"):
        yield "uv"
    for folder in _folders():
        yield from sorted(map(str, folder.glob("uv-*/bin/uv")), reverse=True)


def _answers(program: str) -> bool:
    """A shim of pyenv is found on PATH too, and ends with 127."""
    try:
        return run([program, "--version"], check=False, timeout_s=DEADLINE_S).code == 0
    except (BedplateError, OSError):
        return False
