"""The commands of a RUN: words and pipelines, with the lines they stand at. It is read, and never run.

No full shell: quotes, comments, substitutions, pipelines and here-documents are understood, conditions and loops are
looked through. Variables that are known are put in; the others stay as they are written, `$NAME`.
"""

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import PurePosixPath

type Lines = Sequence[tuple[int, str]]

_VARIABLE = re.compile(
    r"\$(?:\{(?P<braced>[A-Za-z_][A-Za-z0-9_]*)(?::?-(?P<default>[^{}]*))?\}|(?P<plain>[A-Za-z_][A-Za-z0-9_]*))"
)
_ASSIGNMENT = re.compile(r"([A-Za-z_][A-Za-z0-9_]*)=(.*)", re.DOTALL)
_DOCUMENT = re.compile(r"<<-?\s*[\"']?(\w+)[\"']?")
_LOOKED_THROUGH = frozenset(
    ["if", "then", "else", "elif", "do", "while", "until", "!", "{", "}", "time", "sudo", "env", "exec", "command",
     "nohup", "export", "fi", "done", "eval"]
)  # fmt: skip
_SHELLS = ("sh", "bash", "dash", "ash", "zsh")
MAX_DEPTH = 20  # substitutions inside each other; a Dockerfile has two or three


@dataclass(frozen=True)
class Command:
    """pipeline: the same number for commands that are piped into each other."""

    line: int
    words: tuple[str, ...]
    pipeline: int

    @property
    def program(self) -> str:
        """The program's name, without its directory; "" where there is none."""
        return PurePosixPath(self.words[0]).name if self.words else ""

    @property
    def arguments(self) -> tuple[str, ...]:
        return self.words[1:]


def expanded(text: str, known: Mapping[str, str]) -> str:
    """A text with the variables that are known put in."""

    def value(found: re.Match[str]) -> str:
        name = found["braced"] or found["plain"]
        return known.get(name, found["default"] if found["default"] is not None else found[0])

    return _VARIABLE.sub(value, text)


def commands(lines: Lines, known: Mapping[str, str]) -> list[Command]:
    """The commands of a shell text, in order."""
    reader = _Reader(dict(known))
    reader.read(_without_documents(lines), 0)
    return reader.found


def _without_documents(lines: Lines) -> list[tuple[int, str]]:
    kept: list[tuple[int, str]] = []
    rest = iter(lines)
    for number, line in rest:
        kept.append((number, line))
        for delimiter in _DOCUMENT.findall(line.replace("<<<", "")):
            for _, inner in rest:
                if inner.strip() == delimiter:
                    break
    return kept


class _Reader:
    def __init__(self, known: dict[str, str]) -> None:
        self.known = known
        self.found: list[Command] = []
        self.pipelines = 0

    def read(self, lines: Lines, depth: int) -> None:
        text = "\n".join(line for _, line in lines)
        numbers = [number for number, line in lines for _ in range(line.count("\n") + 1)]
        self._text(text, numbers or [1], depth)

    def _text(self, text: str, numbers: Sequence[int], depth: int) -> None:  # noqa: C901, PLR0912, PLR0915  one scan
        words: list[str] = []
        word: str | None = None
        began: int | None = None
        row = at = 0
        self.pipelines += 1
        pipeline = self.pipelines

        def here() -> int:
            return numbers[min(row, len(numbers) - 1)]

        def end_word() -> None:
            nonlocal word
            if word is not None:
                words.append(word)
            word = None

        def end_command(*, piped: bool = False) -> None:
            nonlocal began, pipeline
            end_word()
            self._command(words, began or here(), pipeline, depth)
            words.clear()
            began = None
            if not piped:
                self.pipelines += 1
                pipeline = self.pipelines

        while at < len(text):
            char = text[at]
            if char == "\\":
                if text[at + 1 : at + 2] == "\n":
                    row += 1
                elif at + 1 < len(text):
                    word = (word or "") + text[at + 1]
                    began = began or here()
                at += 2
                continue
            if char == "#" and word is None:
                end = text.find("\n", at)
                at = len(text) if end < 0 else end
                continue
            inner, length = _substitution(text, at)
            if inner is not None and char != "'":
                began = began or here()
                if depth < MAX_DEPTH:
                    self._text(inner, numbers[min(row, len(numbers) - 1) :], depth + 1)
                row += text.count("\n", at, at + length)
                word = (word or "") + "$(…)"
                at += length
                continue
            if char in "'\"":
                began = began or here()
                quoted, length = self._quoted(text, at, numbers[min(row, len(numbers) - 1) :], depth)
                row += text.count("\n", at, at + length)
                word = (word or "") + quoted
                at += length
                continue
            if char == "$" and (found := _VARIABLE.match(text, at)):
                began = began or here()
                word = (word or "") + expanded(found[0], self.known)
                at = found.end()
                continue
            if char in "|&;()\n":
                double = text[at : at + 2]
                # `2>&1` and `&>` are redirections
                if char == "&" and (text[at - 1 : at] in (">", "<") or double == "&>"):
                    word = (word or "") + char
                    at += 1
                    continue
                end_command(piped=char == "|" and double != "||")
                row += char == "\n"
                at += 2 if double in ("||", "&&", ";;", "|&") else 1
                continue
            if char in " \t\r":
                end_word()
                at += 1
                continue
            if char in "<>":
                end_word()
                words.append(char)
                began = began or here()
                at += 1
                continue
            word = (word or "") + char
            began = began or here()
            at += 1
        end_command()

    def _quoted(self, text: str, at: int, numbers: Sequence[int], depth: int) -> tuple[str, int]:
        """What stands between quotes, and how long it is with them."""
        if text[at] == "'":
            end = text.find("'", at + 1)
            end = len(text) if end < 0 else end
            return text[at + 1 : end], end + 1 - at
        start, said = at, ""
        at += 1
        while at < len(text) and text[at] != '"':
            inner, length = _substitution(text, at)
            if inner is not None and depth < MAX_DEPTH:
                row = text.count("\n", start, at)
                self._text(inner, numbers[min(row, len(numbers) - 1) :], depth + 1)
                said += "$(…)"
                at += length
            elif text[at] == "\\" and at + 1 < len(text):
                said += "" if text[at + 1] == "\n" else text[at + 1]
                at += 2
            elif text[at] == "$" and (found := _VARIABLE.match(text, at)):
                said += expanded(found[0], self.known)
                at = found.end()
            else:
                said += text[at]
                at += 1
        return said, at + 1 - start

    def _command(self, words: Iterable[str], line: int, pipeline: int, depth: int) -> None:
        left = list(words)
        while left:
            assigned = _ASSIGNMENT.fullmatch(left[0])
            if assigned and len(left) == 1:
                self.known[assigned[1]] = assigned[2]
            if not assigned and left[0] not in _LOOKED_THROUGH:
                break
            left.pop(0)
        if not left:
            return
        self.found.append(Command(line, tuple(left), pipeline))
        if PurePosixPath(left[0]).name in _SHELLS and depth < MAX_DEPTH:
            for index, word in enumerate(left[1:-1], 1):
                if re.fullmatch(r"-[a-z]*c", word):
                    inner = left[index + 1]
                    self._text(inner, [line], depth + 1)
                    break


def _substitution(text: str, at: int) -> tuple[str | None, int]:
    """The commands of `$(…)`, `<(…)`, `>(…)` or backticks that begin here, and their length; arithmetic is none."""
    if text[at] == "`":
        end = text.find("`", at + 1)
        return (text[at + 1 : end], end + 1 - at) if end > 0 else (None, 0)
    if text[at : at + 2] not in ("$(", "<(", ">("):
        return None, 0
    open_, end = 1, at + 2
    while end < len(text) and open_:
        open_ += {"(": 1, ")": -1}.get(text[end], 0)
        end += 1
    inner = text[at + 2 : end - (0 if open_ else 1)]
    return ("" if inner.startswith("(") else inner), end - at
