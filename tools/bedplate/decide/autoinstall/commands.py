"""Commands of a file: what runs where, and what a shell has to read first."""

import re
import shlex
from dataclasses import dataclass
from typing import Any

from bedplate.decide.autoinstall.findings import Report, Shell
from bedplate.decide.autoinstall.shapes import Items
from bedplate.model.text import Path

_OPERATORS = frozenset({"|", "||", "&&", "&", ";", ">", ">>", "<", "2>", "2>>", "2>&1", "&>"})
_SHELLS: dict[str, Shell] = {"sh": "sh", "dash": "sh", "bash": "bash"}
_ENDS = frozenset(";&|()\n")
_ELSEWHERE = ("/target/", "$TARGET_MOUNT_POINT/", "${TARGET_MOUNT_POINT}/", "/dev/", "/run/", "/tmp/", "/var/log/")  # noqa: S108
_FORM = "[curtin, in-target, --, sh, -c, '…'], or write to /target/…"


@dataclass(frozen=True)
class Command:
    """A text for `sh -c`, or a list that is run as it stands."""

    wanted: str = "text or a list of text"

    def fits(self, value: Any) -> bool:
        return isinstance(value, str | list)

    def check(self, report: Report, path: Path, value: Any) -> None:
        if isinstance(value, str):
            if not value.strip():
                report.add("command", path, "an empty command", "remove it")
                return
            report.script(path, value)
            _redirections(report, path, value)
            return
        for index, item in enumerate(value):
            if not isinstance(item, str) and not report.doubted((*path, index)):
                report.add("type", (*path, index), "no text in a command", "put it in quotes")
        words = [item if isinstance(item, str) else "" for item in value]
        if not words or not words[0].strip():
            report.add("command", path, "a command without a program", "name it")
            return
        _words(report, path, words)


def _words(report: Report, path: Path, words: list[str]) -> None:
    if any("\0" in word for word in words):
        report.add("command", path, "a NUL byte in a command", "remove it")
        return
    if re.search(r"\s", words[0]):
        report.add(
            "command-list", (*path, 0), f'"{words[0][:60]}" would be the name of one program', "one word per item"
        )
    script = _inner_script(words)
    if script is not None:
        at, shell = script
        report.script((*path, at), words[at], shell)
    for index, word in enumerate(words):
        if word in _OPERATORS and (script is None or index < script[0]):
            remedy = "use a text, or [sh, -c, '…']"
            report.add("command-list", (*path, index), f'"{word}" in a list is an argument, not an operator', remedy)
    _in_target(report, path, words)


def _inner_script(words: list[str]) -> tuple[int, Shell] | None:
    """Place of the text that `sh -c` in a list gets."""
    for index, word in enumerate(words):
        shell = _SHELLS.get(word.rpartition("/")[2])
        if shell is None:
            continue
        at = index + 1
        while at < len(words) and words[at].startswith("-"):
            if words[at].endswith("c") and not words[at].startswith("--"):
                return (at + 1, shell) if at + 1 < len(words) else None
            at += 1
    return None


def _in_target(report: Report, path: Path, words: list[str]) -> None:
    if "in-target" not in words:
        return
    rest = words[words.index("in-target") + 1 :]
    while rest and rest[0] != "--" and rest[0].startswith("-"):
        rest = rest[1 if "=" in rest[0] or rest[0] in ("-i", "--interactive", "--capture") else 2 :]
    if not rest or rest[0] != "--":
        report.add("in-target", path, "`curtin in-target` without --", "curtin in-target -- PROGRAM …")


def _redirections(report: Report, path: Path, text: str) -> None:
    """What a shell in the installer would take away from a command in the target."""
    lexer = shlex.shlex(text, posix=True, punctuation_chars=";&|()<>\n")
    lexer.whitespace, lexer.whitespace_split, lexer.commenters = " \t\r", True, ""
    try:
        tokens = list(lexer)
    except ValueError:
        return  # the shell says what is wrong
    segment: list[str] = []
    for word in [*tokens, "\n"]:
        if not word or not set(word) <= _ENDS:
            segment.append(word)
            continue
        if "in-target" in segment:
            _segment(report, path, segment, piped=word == "|")
        segment = []


def _segment(report: Report, path: Path, words: list[str], *, piped: bool) -> None:
    _in_target(report, path, [word for word in words if not re.fullmatch(r"[<>&]+", word)])
    if piped:
        report.add("redirect", path, "a pipe behind in-target: its other end runs in the installer", _FORM)
    for index, word in enumerate(words[:-1]):
        if word in (">", ">>", "<>") and not words[index + 1].startswith(_ELSEWHERE):
            found = f"`{word} {words[index + 1][:60]}` behind in-target writes to the installer"
            report.add("redirect", path, found, _FORM)


COMMANDS = Items(Command())
