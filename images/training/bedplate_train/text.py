"""YAML and JSON files as plain data: YAML with the line of every key, JSON canonical, files written whole."""

import hashlib
import json
import os
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import rfc8785
import yaml

from bedplate_train.faults import Fault, Refused

type Place = tuple[str | int, ...]


class _Loader(yaml.SafeLoader):
    """YAML 1.1 takes 3e-4 for a text, and few people know; here it is a number, as in YAML 1.2."""


_Loader.add_implicit_resolver(
    "tag:yaml.org,2002:float", re.compile(r"[-+]?[0-9]+(\.[0-9]*)?[eE][-+]?[0-9]+"), list("-+0123456789")
)


def read_yaml(text: str, file: str) -> tuple[Any, Mapping[Place, int]]:
    """The data of a YAML text, and the line of each of its values.

    Raises:
        Refused: it is no YAML, or a key stands twice.
    """
    try:
        loader = _Loader(text)
        try:
            root = loader.get_single_node()
            lines: dict[Place, int] = {}
            faults: list[Fault] = []
            if root is not None:
                _walk(root, (), lines, faults, file)
            data = loader.construct_document(root) if root is not None and not faults else None
        finally:
            loader.dispose()
    except yaml.MarkedYAMLError as fault:
        mark = fault.problem_mark or fault.context_mark
        where = f"{file}:{mark.line + 1}" if mark else file
        raise Refused([Fault(where, f"no YAML: {fault.problem or fault}")]) from fault
    except (yaml.YAMLError, ValueError, RecursionError) as fault:
        raise Refused([Fault(file, f"no YAML: {fault}")]) from fault
    if faults:
        raise Refused(faults)
    return data, lines


def _walk(node: yaml.Node, place: Place, lines: dict[Place, int], faults: list[Fault], file: str) -> None:
    lines.setdefault(place, node.start_mark.line + 1)
    if isinstance(node, yaml.MappingNode):
        seen = set()
        for key, value in node.value:
            name = str(key.value)
            line = key.start_mark.line + 1
            if name in seen:
                faults.append(Fault(f"{file}:{line}", f"{dotted((*place, name))} stands twice", "keep one"))
            seen.add(name)
            lines[*place, name] = line
            _walk(value, (*place, name), lines, faults, file)
    elif isinstance(node, yaml.SequenceNode):
        for index, value in enumerate(node.value):
            _walk(value, (*place, index), lines, faults, file)


def dotted(place: Place) -> str:
    """`batch.global`, `parallel.stages[3]`."""
    text = ""
    for part in place:
        text += f"[{part}]" if isinstance(part, int) else f".{part}" if text else part
    return text


def canonical(data: Any) -> bytes:
    """RFC 8785: one text for one meaning; what a hash is taken of."""
    return rfc8785.dumps(data)


def identity(data: Any) -> str:
    return hashlib.sha256(canonical(data)).hexdigest()


def file_sha256(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def write_whole(path: Path, data: bytes) -> None:
    """The file has the old bytes or the new ones, whenever the machine stops."""
    path.parent.mkdir(parents=True, exist_ok=True)
    beside = path.with_name(f".{path.name}.{os.getpid()}")
    try:
        with beside.open("wb") as file:
            file.write(data)
            file.flush()
            os.fsync(file.fileno())
        beside.replace(path)
    finally:
        beside.unlink(missing_ok=True)
    sync_directory(path.parent)


def sync_directory(path: Path) -> None:
    handle = os.open(path, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


def write_json(path: Path, data: Any) -> None:
    """For people: indented, sorted; its meaning is what `identity` hashes."""
    write_whole(path, (json.dumps(data, indent=2, sort_keys=True) + "\n").encode())


def read_json(path: Path) -> Any:
    """Read a JSON file.

    Raises:
        Refused: it cannot be read, or is no JSON.
    """
    try:
        return json.loads(path.read_bytes())
    except OSError as fault:
        raise Refused([Fault(str(path), f"cannot be read: {fault.strerror}")]) from fault
    except ValueError as fault:
        raise Refused([Fault(str(path), f"no JSON: {fault}")]) from fault
