"""The program that nodes get: tools/bedplate_place in one archive, and the command that runs it from stdin.

Nothing of it is left on a node: the archive lies in memory there.
"""

import io
import json
import shlex
import zipfile
from collections.abc import Mapping
from functools import cache
from importlib.resources import files

import bedplate_place

PYTHON = "/usr/bin/python3"  # the system's own: python3-libtorrent belongs to it
_BOOT = (
    "import os,sys;n,d=int(sys.argv[1]),sys.argv[2];f=os.memfd_create('bedplate_place');"
    "os.write(f,sys.stdin.buffer.read(n));sys.path.insert(0,f'/proc/self/fd/{f}');"
    "from bedplate_place.command import main;main(d)"
)


@cache
def program() -> bytes:
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w", zipfile.ZIP_DEFLATED) as archive:
        for entry in sorted(files(bedplate_place).iterdir(), key=lambda one: one.name):
            if entry.name.endswith(".py"):
                archive.writestr(f"bedplate_place/{entry.name}", entry.read_bytes())
    return buffer.getvalue()


def argv(directory: str) -> list[str]:
    return [PYTHON, "-I", "-c", _BOOT, str(len(program())), directory]


def command(directory: str) -> str:
    """What is run on a node; its stdin begins with `opening`."""
    return shlex.join(argv(directory))


def opening(spec: Mapping[str, object]) -> bytes:
    """The first bytes of stdin: the program, and what it is asked to do."""
    return program() + json.dumps(spec).encode() + b"\n"
