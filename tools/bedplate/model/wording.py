"""What a pinned value may not say: "latest", placeholders, Jinja delimiters, half a digest."""

import re
from collections.abc import Callable, Iterator

from bedplate.model.canonical import DIGEST
from bedplate.model.faults import Fault
from bedplate.model.schema import wrong
from bedplate.model.text import Document, Path

JINJA = re.compile(r"\{\{|\{%|\{#")  # Ansible templates strings: "{{ 1 + 1 }}" would arrive on a node as 2
_LATEST = re.compile(r"(.*[:/])?latest", re.IGNORECASE)
_UNFINISHED = re.compile(r"\b(todo|fixme|tbd|changeme|change[-_ ]me|placeholder|x{3,})\b", re.IGNORECASE)
_ANGLES = re.compile(r"<[^<>]*>|<\.\.\.|\.\.\.>")


def exact_faults(document: Document, *, prose: Callable[[Path], bool] = lambda _: False) -> Iterator[Fault]:
    """Faults of every text in a document that must name one exact thing.

    In prose (the reason why a layer is not managed) only Jinja delimiters and unfinished text are faults.
    """
    for path, value in _texts(document.data, ()):
        if JINJA.search(value):
            yield document.fault(path, f'"{value}" holds a Jinja delimiter', "write the value itself")
        elif _UNFINISHED.search(value) or (not prose(path) and _ANGLES.search(value)):
            yield document.fault(path, f'"{value}" is a placeholder', "write the value itself")
        elif prose(path):
            continue
        elif _LATEST.fullmatch(value):
            yield document.fault(path, f'"{value}" names no version', "write an exact version or digest")
        elif value.startswith("sha256:") and not DIGEST.fullmatch(value) and path[-1:] != ("digest",):
            yield document.fault(path, f'"{value}" is no digest', "sha256: and 64 hexadecimal digits")


def inner_path(value: str) -> str:
    """A path that stays inside its directory, for a border model."""
    parts = value.split("/")
    if not value or value.startswith("/") or any(part in ("", ".", "..") for part in parts):
        raise wrong(f'"{value}" is no path inside the site', "a relative path without . and ..")
    return value


def _texts(data: object, path: Path) -> Iterator[tuple[Path, str]]:
    if isinstance(data, str):
        yield path, data
    elif isinstance(data, dict):
        for key, value in data.items():
            yield from _texts(value, (*path, key))
    elif isinstance(data, list):
        for index, value in enumerate(data):
            yield from _texts(value, (*path, index))
