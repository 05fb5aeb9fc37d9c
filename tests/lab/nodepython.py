"""Python of a lab host: what Ansible sends is compiled once, and not again by every task.

For the lab only, whose hosts share a few processors: a zip archive has no place for compiled code, so that each task
compiles a hundred kilobytes, a quarter of its time. Nothing else of a task is another than on a real node.
"""

from pathlib import Path

from lab.controller import write

NAME = "lab_compile_once"
PACKAGES = "usr/lib/python3/dist-packages"  # Debian's: for whichever Python 3 the host has
CODE = '''\
"""Bedplate lab: code from zip archives is compiled once (tests/lab/nodepython.py)."""

import _imp
import marshal
import os
import sys
import zipimport

FOLDER = f"/var/cache/lab-compile-once/{sys.implementation.cache_tag}"
compile_source = zipimport._compile_source


def once(path, source):
    name = f"{FOLDER}/{_imp.source_hash(0, source).hex()}-{len(source)}"
    try:
        with open(name, "rb") as known:
            return marshal.loads(known.read())
    except (OSError, EOFError, ValueError, TypeError):
        code = compile_source(path, source)
    try:
        os.makedirs(FOLDER, mode=0o700, exist_ok=True)
        part = f"{name}.{os.getpid()}"
        with open(part, "wb") as new:
            new.write(marshal.dumps(code))
        os.replace(part, name)
    except OSError:
        pass
    return code


zipimport._compile_source = once
'''


def compile_once(root: Path) -> None:
    """Lay it into the root of a host."""
    write(root / PACKAGES / f"{NAME}.py", CODE)
    write(root / PACKAGES / f"{NAME}.pth", f"import {NAME}\n")
