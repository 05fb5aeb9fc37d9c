"""What a Dockerfile may build from: the base that image.yml pins, and nothing else that has no digest.

A FROM with a tag, a default for BASE, a file from another image or an address would be a second place that
says what the image is made of, and one that changes by itself. What RUN fetches is not seen here.
What image.yml brings besides (upstream, sources) is a context with a name: one that nothing takes files from is missing
in the image, and a fault.
"""

import re
from collections.abc import Collection, Iterator
from dataclasses import dataclass

from bedplate.model.faults import Fault

_HEREDOC = re.compile(r"<<-?\s*[\"']?(\w+)[\"']?")
_WITH_DOCUMENTS = ("RUN", "COPY", "ADD")
_BASE = ("$BASE", "${BASE}")
_URL = re.compile(r"(https?|ftp|git)://|git@", re.IGNORECASE)


type Lines = tuple[tuple[int, str], ...]


@dataclass(frozen=True)
class Instruction:
    """lines: as they stand in the file, continuations too; documents: its here-documents, one after the other."""

    line: int
    name: str
    words: tuple[str, ...]
    lines: Lines = ()
    documents: tuple[Lines, ...] = ()

    @property
    def flags(self) -> list[str]:
        return [word for word in self.words if word.startswith("--")]

    @property
    def arguments(self) -> list[str]:
        return [word for word in self.words if not word.startswith("--")]


def instructions(text: str) -> Iterator[Instruction]:
    """The instructions of a Dockerfile, continued lines joined, comments and here-documents left out."""
    lines = iter(enumerate(text.splitlines(), 1))
    for number, first in lines:
        whole = first.strip()
        if not whole or whole.startswith("#"):
            continue
        source = [(number, first)]
        while whole.endswith("\\"):
            at, more = next(lines, (0, ""))
            if not more.strip().startswith("#"):  # a comment between continued lines is dropped
                whole = whole[:-1] + " " + more.strip()
                source.append((at or source[-1][0], more))
        documents: list[Lines] = []
        name, *words = whole.split() or [""]  # a lone backslash
        for delimiter in _HEREDOC.findall(whole) if name.upper() in _WITH_DOCUMENTS else ():
            inside = []
            for at, inner in lines:
                if inner.strip() == delimiter:
                    break
                inside.append((at, inner))
            documents.append(tuple(inside))
        yield Instruction(number, name.upper(), tuple(words), tuple(source), tuple(documents))


def dockerfile_faults(text: str, file: str, contexts: Collection[str] = (), taken: Collection[str] = ()) -> list[Fault]:
    """Every instruction that takes something without a digest, and every context of `taken` that none takes files from.

    contexts: the names that --from= may have besides stages.
    """
    faults: list[Fault] = []
    unused = set(taken)
    stages: list[str] = []  # lower case, as builders compare them
    from_base = False

    def wrong(instruction: Instruction, found: str, remedy: str) -> None:
        faults.append(Fault(file, instruction.line, found, remedy))

    for one in instructions(text):
        if one.name == "ARG" and any(word.startswith("BASE=") for word in one.words):
            wrong(one, "ARG BASE has a default", "write ARG BASE: image.yml says what the base is")
        elif one.name == "FROM":
            source = one.arguments[0] if one.arguments else ""
            from_base = from_base or source in _BASE
            if source not in _BASE and source != "scratch" and source.lower() not in stages:
                wrong(one, f"FROM {source} is not pinned", "write FROM ${BASE}: image.yml has its digest")
            named = [word.lower() for word in one.arguments[1:]]
            stages.append(named[1] if len(named) > 1 and named[0] == "as" else str(len(stages)))
        else:
            unused -= set(_froms(one))
            for outside in _foreign(one, [*stages, *contexts]):
                wrong(one, f"{one.name} takes files from {outside}, which is not pinned", "take them from a stage")
            checked = any(flag.startswith("--checksum=sha256:") for flag in one.flags)
            if one.name == "ADD" and _URL.search(" ".join(one.arguments)) and not checked:
                wrong(one, "ADD of an address without --checksum=sha256:…", "put the file beside the Dockerfile")
    if not from_base:
        faults.append(Fault(file, None, "no FROM ${BASE}", "begin with ARG BASE, FROM ${BASE}"))
    faults += [
        Fault(file, None, f"takes nothing from {name}", f"write COPY --from={name} . /opt/…") for name in sorted(unused)
    ]
    return faults


def _foreign(instruction: Instruction, stages: list[str]) -> Iterator[str]:
    """Images that --from= or --mount=…,from= names and that are no stage of this file, nor one of its contexts."""
    for found in _froms(instruction):
        position = found.isdigit() and int(found) < len(stages)
        if found.lower() not in stages and not position and found not in _BASE:
            yield found


def _froms(instruction: Instruction) -> Iterator[str]:
    for flag in instruction.flags:
        yield from re.findall(r"(?:^--|,)from=([^,\s]+)", flag.replace("--mount=", ","))
