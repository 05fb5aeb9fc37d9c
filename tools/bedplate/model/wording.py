"""What a pinned value may not say: "latest", placeholders, Jinja delimiters, half a digest."""

import re
from collections.abc import Callable, Iterator

from pydantic import AfterValidator

from bedplate.model.canonical import DIGEST
from bedplate.model.faults import Fault
from bedplate.model.schema import wrong
from bedplate.model.text import Document, Path

JINJA = re.compile(r"\{\{|\{%|\{#")  # Ansible templates strings: "{{ 1 + 1 }}" would arrive on a node as 2
_LATEST = re.compile(r"(.*[:/])?latest", re.IGNORECASE)
_UNFINISHED = re.compile(r"\b(todo|fixme|tbd|changeme|change[-_ ]me|placeholder|x{3,})\b", re.IGNORECASE)
_ANGLES = re.compile(r"<[^<>]*>")


def exact_faults(document: Document, *, prose: Callable[[Path], bool] = lambda _: False) -> Iterator[Fault]:
    """Faults of every text in a document that must name one exact thing, or in prose, be finished."""
    for path, value in _texts(document.data, ()):
        if (fault := unfinished(value) if prose(path) else inexact(value)) is not None:
            yield document.fault(path, *fault)


def unfinished(value: str) -> tuple[str, str] | None:
    """What is wrong with a text that nobody has written yet, and the remedy."""
    if JINJA.search(value):
        return f'"{value}" holds a Jinja delimiter', "write the value itself"
    if _UNFINISHED.search(value):
        return f'"{value}" is a placeholder', "write the value itself"
    return None


def inexact(value: str) -> tuple[str, str] | None:
    """What is wrong with a text that does not name one exact thing, and the remedy."""
    if (fault := unfinished(value)) is not None:
        return fault
    if _ANGLES.search(value):
        return f'"{value}" is a placeholder', "write the value itself"
    if _LATEST.fullmatch(value):
        return f'"{value}" names no version', "write an exact version or digest"
    if value.startswith("sha256:") and not DIGEST.fullmatch(value):
        return f'"{value}" is no digest', "sha256: and 64 hexadecimal digits"
    return None


def matching(pattern: re.Pattern[str], what: str, remedy: str) -> AfterValidator:
    """For a border model: a text of a certain form. What `exact_faults` tells is not told a second time."""

    def check(value: str) -> str:
        if not pattern.fullmatch(value) and inexact(value) is None:
            raise wrong(f'"{value}" is no {what}', remedy)
        return value

    return AfterValidator(check)


# A path that stays inside its directory.
inner_path = matching(
    re.compile(r"(?!\.{1,2}(/|$))[^/]+(/(?!\.{1,2}(/|$))[^/]+)*"),
    "path inside the site",
    "a relative path without . and ..",
)


def _texts(data: object, path: Path) -> Iterator[tuple[Path, str]]:
    if isinstance(data, str):
        yield path, data
    elif isinstance(data, dict):
        for key, value in data.items():
            yield from _texts(value, (*path, key))
    elif isinstance(data, list):
        for index, value in enumerate(data):
            yield from _texts(value, (*path, index))
