"""The node agent as one file: a zipapp of tools/bedplate_agent whose bytes depend on its source alone.

Beside each module lies what this Python compiles it to: on a node with the same minor version (Ubuntu 24.04 has ours)
the agent starts in a quarter of the time; another version ignores it, and compiles the source.

`parcel` is the same for `bedplate health`, which brings the agent along: without the archive, which takes as long to
look into as all modules take to be loaded.
"""

import importlib.util
import io
import marshal
import zipfile
import zlib
from functools import cache
from importlib.resources import files
from importlib.resources.abc import Traversable

import bedplate_agent
from bedplate.model.canonical import sha256

SHEBANG = b"#!/usr/bin/env python3\n"
PACKAGE = "bedplate_agent"
CHECKS = f"{PACKAGE}/checks/"
# It lives for seconds and makes no cycles: a collector would only look through it again and again, in each child.
MAIN = f"import gc\ngc.disable()\nfrom {PACKAGE}.command import main\nmain()\n"
EPOCH = (1980, 1, 1, 0, 0, 0)  # the first moment that zip can write: a build has no time
UNCHECKED = (1).to_bytes(4, "little")  # PEP 552: a hash instead of a time, and nobody compares it
# The last format of marshal without back references: those depend on what else the process holds.
PLAIN_MARSHAL = 2


@cache
def agent() -> bytes:
    """The zipapp: the same bytes wherever and whenever it is built, by one minor version of Python."""
    buffer = io.BytesIO(SHEBANG)
    buffer.seek(0, io.SEEK_END)
    with zipfile.ZipFile(buffer, "a", zipfile.ZIP_STORED) as archive:
        # Not compressed: zlib's versions differ in their bytes, and half a megabyte to a node is nothing.
        for name, data in [("__main__.py", MAIN.encode()), *_sources()]:
            _add(archive, name, data)
            if name != "__main__.py":
                _add(archive, f"{name}c", _compiled(name, data))
    return buffer.getvalue()


@cache
def parcel() -> bytes:
    """Two parts, each as `LENGTH newline bytes`: what `unpack` in BOOT of observe/health.py reads.

    The first begins with the magic number of our Python, and is for nodes with the same; the second has the sources.
    Both are a marshalled dictionary, compressed: name of a module -> (whether it is a package, code or source).
    """
    sources = {name.removesuffix(".py"): data for name, data in _sources()}
    modules = {
        name.removesuffix("/__init__").replace("/", "."): (name.endswith("/__init__"), name, data)
        for name, data in sources.items()
    }
    compiled = {
        name: (package, marshal.dumps(compile(data, f"{place}.py", "exec", dont_inherit=True, optimize=0)))
        for name, (package, place, data) in modules.items()
    }
    plain = {name: (package, data) for name, (package, _, data) in modules.items()}
    parts = (importlib.util.MAGIC_NUMBER + _pressed(compiled), _pressed(plain))
    return b"".join(b"%d\n%b" % (len(part), part) for part in parts)


def _pressed(modules: dict[str, tuple[bool, bytes]]) -> bytes:
    return zlib.compress(marshal.dumps(modules, PLAIN_MARSHAL), 9)


def agent_sha256() -> str:
    return sha256(agent())


def _add(archive: zipfile.ZipFile, name: str, data: bytes) -> None:
    entry = zipfile.ZipInfo(name, EPOCH)
    entry.external_attr, entry.create_system = 0o644 << 16, 3  # as Unix writes it, on whatever system
    archive.writestr(entry, data)


def _compiled(name: str, source: bytes) -> bytes:
    code = compile(source, name, "exec", dont_inherit=True, optimize=0)
    return (
        importlib.util.MAGIC_NUMBER
        + UNCHECKED
        + importlib.util.source_hash(source)
        + marshal.dumps(code, PLAIN_MARSHAL)
    )


def _sources() -> list[tuple[str, bytes]]:
    found: list[tuple[str, bytes]] = []

    def walk(folder: Traversable, place: str) -> None:
        for entry in sorted(folder.iterdir(), key=lambda one: one.name):
            if entry.is_dir() and entry.name != "__pycache__":
                walk(entry, f"{place}/{entry.name}")
            elif entry.name.endswith(".py"):
                found.append((f"{place}/{entry.name}", entry.read_bytes()))

    walk(files(bedplate_agent), PACKAGE)
    names = [name.removeprefix(CHECKS).removesuffix(".py") for name, _ in found if name.startswith(CHECKS)]
    told = f"\nNAMES = {tuple(name for name in names if name != '__init__')!r}\n".encode()  # registry.py reads it
    return [(name, data + told if name == f"{CHECKS}__init__.py" else data) for name, data in found]
