"""Shapes of values with closed key sets: a shape tells everything that is wrong with a value, at its line.

Keys({"install": Flag()}, required=("install",)).check(report, ("oem",), {"instal": True})
-> oem: unknown key "instal" (did you mean "install"?) [unknown-key]
   oem: "install" is missing (add it) [missing-key]
"""

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Protocol

from bedplate.decide.autoinstall.findings import Report
from bedplate.model.schema import meant, nearest, said, what
from bedplate.model.text import Path

SHOWN = 60  # characters of a value in a message


class Shape(Protocol):
    @property
    def wanted(self) -> str:
        """What it is, for a message."""

    def fits(self, value: Any) -> bool:
        """Whether a value is of its type at all."""

    def check(self, report: Report, path: Path, value: Any) -> None:
        """Tell what is wrong with a value."""


def examine(shape: Shape, report: Report, path: Path, value: Any) -> None:
    """Check a value, its type first."""
    if report.doubted(path):
        return
    if shape.fits(value):
        shape.check(report, path, value)
    else:
        quoted = isinstance(value, bool | int) and shape.wanted.startswith("text")
        remedy = f'put it in quotes: "{said(value)}"' if quoted else ""
        report.add("type", path, f"found {what(value, most=SHOWN)}, wanted {shape.wanted}", remedy)


@dataclass(frozen=True)
class Flag:
    wanted: str = "true or false"

    def fits(self, value: Any) -> bool:
        return isinstance(value, bool)

    def check(self, report: Report, path: Path, value: Any) -> None:
        """Nothing more to say."""


@dataclass(frozen=True)
class Null:
    wanted: str = "nothing"

    def fits(self, value: Any) -> bool:
        return value is None

    def check(self, report: Report, path: Path, value: Any) -> None:
        """Nothing more to say."""


@dataclass(frozen=True)
class Number:
    low: int = 0
    high: int = 2**63 - 1
    wanted: str = "a whole number"

    def fits(self, value: Any) -> bool:
        return isinstance(value, int) and not isinstance(value, bool)

    def check(self, report: Report, path: Path, value: Any) -> None:
        if not self.low <= value <= self.high:
            bounds = f"{self.low}" if self.low == self.high else f"{self.low} to {self.high}"
            report.add("value", path, f"found {value}, wanted {bounds}")


@dataclass(frozen=True)
class Text:
    """Text; `pattern` and `remedy` say which, `judge` tells the rest."""

    pattern: str = ""
    remedy: str = ""
    longest: int = 0
    empty: bool = False
    judge: Callable[[Report, Path, str], None] | None = None
    wanted: str = "text"

    def fits(self, value: Any) -> bool:
        return isinstance(value, str)

    def check(self, report: Report, path: Path, value: Any) -> None:
        if not value and not self.empty:
            report.add("value", path, "an empty text", self.remedy or "write it, or leave the key out")
            return
        if self.longest and len(value.encode()) > self.longest:
            found = f"{len(value.encode())} bytes, its reader takes {self.longest}"
            report.add("size", path, found, "shorten it")
        if self.pattern and not re.fullmatch(self.pattern, value):
            report.add("value", path, f"found {what(value, most=SHOWN)}", self.remedy)
        elif self.judge:
            self.judge(report, path, value)


@dataclass(frozen=True)
class Word:
    """One of a few words."""

    words: tuple[str, ...]
    rule: str = "value"

    @property
    def wanted(self) -> str:
        return "text, one of: " + ", ".join(self.words)

    def fits(self, value: Any) -> bool:
        return isinstance(value, str)

    def check(self, report: Report, path: Path, value: Any) -> None:
        if value not in self.words:
            report.add(self.rule, path, f"found {what(value, most=SHOWN)}", f"one of: {', '.join(self.words)}")


def word(*words: str, rule: str = "value") -> Word:
    return Word(words, rule)


@dataclass(frozen=True)
class Items:
    of: Shape
    least: int = 0
    judge: Callable[[Report, Path, list[Any]], None] | None = None
    wanted: str = "a list"

    def fits(self, value: Any) -> bool:
        return isinstance(value, list)

    def check(self, report: Report, path: Path, value: Any) -> None:
        if len(value) < self.least:
            report.add("value", path, f"a list of {len(value)}, wanted at least {self.least}")
        for index, item in enumerate(value):
            examine(self.of, report, (*path, index), item)
        if self.judge:
            self.judge(report, path, value)


@dataclass(frozen=True)
class Keys:
    """A mapping with a closed set of keys."""

    keys: Mapping[str, Shape]
    required: tuple[str, ...] = ()
    rule: str = "unknown-key"
    judge: Callable[[Report, Path, dict[str, Any]], None] | None = field(default=None)
    wanted: str = "a mapping"

    def fits(self, value: Any) -> bool:
        return isinstance(value, dict)

    def check(self, report: Report, path: Path, value: Any) -> None:
        misspelt = set()
        for key, item in value.items():
            if key in self.keys:
                examine(self.keys[key], report, (*path, key), item)
            else:
                misspelt.add(meant(key, self.keys))
                report.add(self.rule, (*path, key), "unknown key", nearest(key, self.keys))
        for key in self.required:
            if key not in value and key not in misspelt:
                report.add("missing-key", path, f'"{key}" is missing', "add it")
        if self.judge:
            self.judge(report, path, value)


@dataclass(frozen=True)
class Names:
    """A mapping from names that the writer chooses to values of one shape."""

    of: Shape
    pattern: str = r"[A-Za-z0-9][A-Za-z0-9._-]*"
    longest: int = 64
    judge: Callable[[Report, Path, dict[str, Any]], None] | None = None
    wanted: str = "a mapping"

    def fits(self, value: Any) -> bool:
        return isinstance(value, dict)

    def check(self, report: Report, path: Path, value: Any) -> None:
        for key, item in value.items():
            if not re.fullmatch(self.pattern, key) or len(key) > self.longest:
                remedy = f"letters, digits, . _ -, at most {self.longest}"
                report.add("value", (*path, key), f'"{key[:60]}" is no name here', remedy)
            examine(self.of, report, (*path, key), item)
        if self.judge:
            self.judge(report, path, value)


class Either:
    """The first of several shapes that fits the value's type."""

    def __init__(self, *shapes: Shape) -> None:
        self.shapes = shapes

    @property
    def wanted(self) -> str:
        return " or ".join(shape.wanted for shape in self.shapes)

    def fits(self, value: Any) -> bool:
        return any(shape.fits(value) for shape in self.shapes)

    def check(self, report: Report, path: Path, value: Any) -> None:
        next(shape for shape in self.shapes if shape.fits(value)).check(report, path, value)


@dataclass(frozen=True)
class Told:
    """A key that is a fault wherever it stands."""

    rule: str
    found: str
    remedy: str = ""
    wanted: str = "nothing"

    def fits(self, value: Any) -> bool:  # noqa: ARG002  whatever it is
        return True

    def check(self, report: Report, path: Path, value: Any) -> None:  # noqa: ARG002
        report.add(self.rule, path, self.found, self.remedy)


UNCHECKED = Told("unchecked-key", "a section that this lint cannot look into", "leave it to Ansible, after the install")


@dataclass(frozen=True)
class Later:
    """A key that the installer of 24.04 does not have."""

    of: Shape

    @property
    def wanted(self) -> str:
        return self.of.wanted

    def fits(self, value: Any) -> bool:
        return self.of.fits(value)

    def check(self, report: Report, path: Path, value: Any) -> None:
        if report.release == "24.04":
            report.add("key-too-new", path, "the installer of 24.04 has no such key", "remove it")
        self.of.check(report, path, value)
