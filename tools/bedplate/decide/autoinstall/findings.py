"""What the lint found in one file, and the commands in it that a shell has yet to read."""

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Literal

from bedplate.decide.autoinstall.rules import RULES
from bedplate.model.faults import Fault
from bedplate.model.text import Document, Path, dotted

Release = Literal["24.04", "26.04"]
RELEASES: tuple[Release, ...] = ("24.04", "26.04")
Shell = Literal["sh", "bash"]


@dataclass(frozen=True, order=True)
class Finding:
    fault: Fault
    rule: str

    def __str__(self) -> str:
        return f"{self.fault} [{self.rule}]"


@dataclass(frozen=True)
class Script:
    """Text for a shell: `sh -n` says whether it can read it."""

    shell: Shell
    text: str
    file: str
    line: int | None
    place: str

    def finding(self, said: str) -> Finding:
        """The finding that this text is none, from what the shell said."""
        words = said.strip().splitlines()[0] if said.strip() else "syntax error"
        return Finding(
            Fault(self.file, self.line, f"{self.place}: {self.shell} -n: {words}", "correct it"), "command-syntax"
        )


@dataclass
class Report:
    """Collects while a file is read."""

    document: Document
    release: Release
    findings: list[Finding] = field(default_factory=list)
    scripts: list[Script] = field(default_factory=list)

    def add(self, rule: str, path: Path, found: str, remedy: str = "") -> None:
        assert rule in RULES, rule  # noqa: S101
        self.findings.append(Finding(self.document.fault(path, found, remedy), rule))

    def script(self, path: Path, text: str, shell: Shell = "sh") -> None:
        """A text that a shell will read; what no process can be given is a fault at once."""
        if "\0" in text:
            self.add("command", path, "a NUL byte in a command", "remove it")
            return
        self.scripts.append(Script(shell, text, self.document.file, self.document.line(*path), dotted(path)))

    def doubted(self, path: Path) -> bool:
        """Whether the value at a place was told as a fault already, and means nothing."""
        return path in self.document.doubted


def texts(value: object, path: Path = ()) -> Iterator[tuple[Path, str]]:
    """Every text in a document, keys left out, with its place."""
    if isinstance(value, str):
        yield path, value
    elif isinstance(value, dict):
        for key, item in value.items():
            yield from texts(item, (*path, key))
    elif isinstance(value, list):
        for index, item in enumerate(value):
            yield from texts(item, (*path, index))
