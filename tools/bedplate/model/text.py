"""YAML with line numbers, without YAML's surprises.

The files of a site are a plain subset of YAML: mappings with names as keys, lists, text, whole numbers, true
and false. What YAML 1.1 would quietly turn into something else (`yes`, `0644`, `12:34:56`, `1.10`, a date),
what stands twice (duplicate keys) or elsewhere (aliases, tags) is a fault, at its line:

    >>> parse_yaml('version: 1.10', 'environments/A.yml')
    BadInput: environments/A.yml:1: version: 1.10 without quotes is the number 1.1 (put it in quotes: "1.10")
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, override

import yaml

from bedplate.model.faults import BadInput, Fault

type Path = tuple[str | int, ...]

MAX_DEPTH = 40  # the deepest file of a site has 5 levels; more would exhaust Python's stack before it meant anything
_PREFIX = "tag:yaml.org,2002:"
_INTEGER = re.compile(r"-?(0|[1-9][0-9]{0,17})")  # fits 64 bits, and is written the way it is read


@dataclass(frozen=True)
class Document:
    """What a YAML file says, and where it says it.

    `faults` are those that leave the rest readable: a value in doubt stands in `data` as the text that was
    written, and its place in `doubted`, so that a reader can go on and report the other faults too.
    """

    file: str
    data: Any
    lines: Mapping[Path, int] = field(default_factory=dict, repr=False)
    faults: tuple[Fault, ...] = ()
    doubted: frozenset[Path] = frozenset()

    def line(self, *path: str | int) -> int | None:
        """The line of a value (of its key, in a mapping), else that of the nearest thing around it."""
        for length in range(len(path), -1, -1):
            if path[:length] in self.lines:
                return self.lines[path[:length]]
        return None

    def fault(self, path: Path, found: str, remedy: str = "") -> Fault:
        """A fault at a place of this file; the message begins with the place's name."""
        return Fault(self.file, self.line(*path), f"{dotted(path)}: {found}" if path else found, remedy)


def dotted(path: Path) -> str:
    """`groups.training.nodes`, `layers.os.packages["libc6.1"]`, `archive.components[0]`."""
    text = ""
    for part in path:
        if isinstance(part, int):
            text += f"[{part}]"
        elif re.fullmatch(r"[\w-]+", part):
            text += f".{part}" if text else part
        else:
            text += f'["{part}"]'
    return text


def parse_yaml(text: str, file: str) -> Document:
    """Read YAML of which nothing is in doubt.

    Raises:
        BadInput: every fault that was found.
    """
    document = read_yaml(text, file)
    if document.faults:
        raise BadInput(document.faults)
    return document


def read_yaml(text: str, file: str) -> Document:
    """Read YAML; faults that leave the rest readable stand in the document.

    Raises:
        BadInput: the text is no YAML at all.
    """
    try:
        loader = _Loader(text)
        try:
            root = loader.get_single_node()
        finally:
            loader.dispose()
    except yaml.MarkedYAMLError as fault:
        mark = fault.problem_mark or fault.context_mark
        raise BadInput([Fault(file, mark.line + 1 if mark else None, *_syntax(fault))]) from fault
    except yaml.reader.ReaderError as fault:
        line = text.count("\n", 0, fault.position) + 1
        code = fault.character if isinstance(fault.character, int) else ord(fault.character[:1])
        found = f"character U+{code:04X} has no place in a text file"
        raise BadInput([Fault(file, line, found, "remove it")]) from fault
    except (
        yaml.YAMLError,
        ValueError,
        OverflowError,
    ) as fault:  # PyYAML lets chr() and int() of odd escapes through
        raise BadInput([Fault(file, None, f"no YAML: {fault}")]) from fault
    reader = _Reader(file)
    data = reader.value(root, ()) if root is not None else None
    reader.lines.setdefault((), 1)
    return Document(file, data, reader.lines, tuple(reader.faults), frozenset(reader.doubted))


def read_vault(text: str, file: str) -> tuple[Document, dict[str, Any]]:
    """Read a decrypted vault: the document, and its keys; none where it is no mapping.

    Raises:
        BadInput: the text is no YAML; told by its lines alone, for the reader's own words could hold one of them.
    """
    try:
        document = read_yaml(text, file)
    except BadInput as fault:
        raise BadInput(
            [Fault(file, each.line, "the vault is no plain YAML here", "see docs/site.md") for each in fault.faults]
        ) from None
    return document, document.data if isinstance(document.data, dict) else {}


def _syntax(fault: yaml.MarkedYAMLError) -> tuple[str, str]:
    problem = fault.problem or str(fault)
    if "'\\t'" in problem:
        return "a tab where YAML wants spaces", "indent with spaces"
    if "expected a single document" in (fault.context or ""):
        return "a second document (---) in one file", "one file, one document"
    found = f"no YAML: {problem}" + (f", {fault.context}" if fault.context else "")
    return found, getattr(fault, "note", None) or "look at this line and the one before"


class _Loader(yaml.SafeLoader):
    """Composes nodes; refuses what a plain file has no use for."""

    depth = 0

    @override
    def compose_node(self, parent: yaml.Node | None, index: Any) -> yaml.Node | None:
        event = self.peek_event()  # type: ignore[no-untyped-call]
        if isinstance(event, yaml.AliasEvent):
            self._refuse(event, f"an alias, *{event.anchor}", "write the value at its place")
        if getattr(event, "tag", None) is not None:
            remedy = "plain text, numbers, lists and mappings only; secrets stand in vault.yml"
            self._refuse(event, f"a tag, {event.tag}", remedy)
        if self.depth >= MAX_DEPTH:
            self._refuse(event, f"more than {MAX_DEPTH} levels inside each other", "no file of a site is this deep")
        self.depth += 1
        try:
            return super().compose_node(parent, index)
        finally:
            self.depth -= 1

    @staticmethod
    def _refuse(event: Any, found: str, remedy: str) -> None:
        raise yaml.composer.ComposerError(None, None, found, event.start_mark, remedy)


class _Reader:
    """Turns nodes into plain values and notes lines, doubts and faults on the way."""

    def __init__(self, file: str) -> None:
        self.file = file
        self.lines: dict[Path, int] = {}
        self.faults: list[Fault] = []
        self.doubted: set[Path] = set()

    def value(self, node: yaml.Node, path: Path) -> Any:
        self.lines.setdefault(path, node.start_mark.line + 1)
        if isinstance(node, yaml.MappingNode):
            return self._mapping(node, path)
        if isinstance(node, yaml.SequenceNode):
            return [self.value(item, (*path, index)) for index, item in enumerate(node.value)]
        value, found, remedy = _scalar(node)
        if found:
            self._fault(node, path, found, remedy)
            self.doubted.add(path)
        return value

    def _mapping(self, node: yaml.MappingNode, path: Path) -> dict[str, Any]:
        data: dict[str, Any] = {}
        for key_node, value_node in node.value:
            if not isinstance(key_node, yaml.ScalarNode):
                self._fault(key_node, path, "a list or mapping as a key", "keys are names")
                continue
            key = str(key_node.value)
            place = (*path, key)
            name, found, _ = _scalar(key_node)
            if found or not isinstance(name, str):
                found = f"a key, {found}" if found else f'a key that is not text, "{key}"'
                self._fault(key_node, path, found, f'put it in quotes: "{key}"')
            if key in data:
                found = f'"{key}" stands here twice, first in line {self.lines[place]}'
                self._fault(key_node, path, found, "keep one")
                continue
            self.lines[place] = key_node.start_mark.line + 1
            data[key] = self.value(value_node, place)
        return data

    def _fault(self, node: yaml.Node, path: Path, found: str, remedy: str) -> None:
        text = f"{dotted(path)}: {found}" if path else found
        self.faults.append(Fault(self.file, node.start_mark.line + 1, text, remedy))


def _scalar(node: yaml.Node) -> tuple[Any, str, str]:  # noqa: PLR0911  a table of YAML's types
    """Value, and what is in doubt about it with the remedy, or two empty strings."""
    text, kind = str(node.value), node.tag.removeprefix(_PREFIX)
    quoted = f'put it in quotes: "{text}"'
    if kind == "null":
        return None, "", ""
    if kind == "bool":
        if text in ("true", "false"):
            return text == "true", "", ""
        means = "true" if text.lower() in ("yes", "on", "true") else "false"
        return (
            text,
            f"{text} without quotes is the truth value {means}",
            f'write {means}, or in quotes "{text}"',
        )
    if kind == "int":
        if _INTEGER.fullmatch(text):
            return int(text), "", ""
        number = _number(text)
        return text, f"{text} without quotes is {number}", f"{quoted}, or write {number}"
    if kind == "float":
        return text, f"{text} without quotes is {_number(text)}", quoted
    if kind == "timestamp":
        return text, f"{text} without quotes is a date", quoted
    return text, "", ""


def _number(text: str) -> str:
    """What YAML 1.1 makes of a number's text: `0644` is 420, `12:34:56` is 45296, `1.10` is 1.1."""
    try:
        return f"the number {yaml.safe_load(text)}"
    except (ValueError, OverflowError):  # "0b_"; more digits than Python converts
        return "a number"
