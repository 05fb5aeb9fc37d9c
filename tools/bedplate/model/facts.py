"""Facts: what a node said of itself, checked at the border before anything believes it.

A part that the node could not read is Unknown, what surely does not exist there is Absent; both say why. A document
that is cut, has a part too few or too many, or says something of another form is none: every fault is told.

    facts = parse_facts(answer.out, "n1")
    facts.kernel.release if isinstance(facts.kernel, Kernel) else facts.kernel.unknown
"""

import json
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from functools import cache
from typing import Annotated, Any, Literal, NamedTuple

from pydantic import AfterValidator, Discriminator, Field, PlainValidator, Tag, ValidationError

from bedplate.model.canonical import DIGEST
from bedplate.model.faults import BadInput, Fault
from bedplate.model.schema import Strict, wrong
from bedplate.model.text import dotted

SCHEMA = 1
LONGEST = 4096  # characters of a text: a kernel command line has 2,048 at most on x86 (COMMAND_LINE_SIZE)
LARGEST = 2**53 - 1
ASK_AGAIN = "the node runs another program than ours, or something stands between: collect again"
SHOWN = 20  # faults of one document; a wrong form repeats in each of 2,500 packages

_PACKAGE = re.compile(r"[a-z0-9][a-z0-9+.-]+")  # Debian Policy 5.6.1
_WORD = re.compile(r"[A-Za-z0-9:+.~_-]*( [a-z-]+)?")  # versions, architectures, dpkg's states, the flag behind one
_MODE = re.compile(r"[0-7]{4}")
PACKAGE_FIELDS = 5
_TAGS = frozenset({"value", "unknown", "absent"})


def _text(value: str) -> str:
    if len(value) > LONGEST:
        raise wrong(f"a text of {len(value)} characters", f"at most {LONGEST}")
    if not value.isprintable():
        raise wrong(f"a text with what no terminal prints: {value[:80]!r}")
    return value


def _matching(pattern: re.Pattern[str], what: str) -> AfterValidator:
    def check(value: str) -> str:
        if not pattern.fullmatch(value):
            raise wrong(f"no {what}: {value[:80]!r}")
        return value

    return AfterValidator(check)


Text = Annotated[str, AfterValidator(_text)]
Said = Annotated[Text, Field(min_length=1)]
Number = Annotated[int, Field(ge=0, le=LARGEST)]
Digest = Annotated[str, _matching(DIGEST, "digest")]


class Unknown(Strict):
    """Could not be read, and why."""

    unknown: Said


class Absent(Strict):
    """Surely does not exist, and why that is sure."""

    absent: Said


def _sort(value: object) -> str:
    """Which of the three a part is; one that is already checked, too."""
    if isinstance(value, Unknown) or (isinstance(value, dict) and value.keys() == {"unknown"}):
        return "unknown"
    if isinstance(value, Absent) or (isinstance(value, dict) and value.keys() == {"absent"}):
        return "absent"
    return "value"


def _known(value: object) -> str:
    """The same where nothing can be absent: what says so is told as a wrong Unknown."""
    return "value" if _sort(value) == "value" else "unknown"


type Or[T] = Annotated[
    Annotated[T, Tag("value")] | Annotated[Unknown, Tag("unknown")],
    Discriminator(_known),
]
type OrAbsent[T] = Annotated[
    Annotated[T, Tag("value")] | Annotated[Unknown, Tag("unknown")] | Annotated[Absent, Tag("absent")],
    Discriminator(_sort),
]


class Package(NamedTuple):
    """One package as dpkg has it; want: hold, install and so on; status: installed, half-configured and so on."""

    name: str
    version: str
    architecture: str
    want: str
    status: str

    @property
    def there(self) -> bool:
        """Whether any of its files are on the disk, beside configuration that a removal left."""
        return self.status not in ("not-installed", "config-files")


@cache
def _package(row: tuple[str, ...]) -> Package | None:
    """A row, None where it is none. Kept: nodes have the same packages, and 660 x 2,500 would fill the memory."""
    if len(row) != PACKAGE_FIELDS or not all(isinstance(part, str) for part in row):
        return None
    return Package(*row) if _PACKAGE.fullmatch(row[0]) and all(map(_WORD.fullmatch, row[1:])) else None


def _packages(value: object) -> tuple[Package, ...]:
    """All rows, and every wrong one told; rows that were checked already, as they are."""
    if isinstance(value, tuple) and all(type(row) is Package for row in value):
        return value
    if not isinstance(value, list):
        raise wrong("no list of packages")
    rows: list[Package] = []
    bad: list[str] = []
    for row in value:
        try:
            package = _package(tuple(row)) if isinstance(row, list) else None
        except TypeError:  # a list in the list
            package = None
        if package is None:
            bad.append(f"no package: {str(row)[:80]!r}")
        else:
            rows.append(package)
    if bad:
        raise wrong("; ".join(bad[:SHOWN]) + (f"; {len(bad) - SHOWN} more" if len(bad) > SHOWN else ""))
    if not any(row.name == "dpkg" for row in rows):
        raise wrong("packages without dpkg itself", "an empty answer is none")
    return tuple(rows)


class Os(Strict):
    id: Said
    version_id: Text
    version_codename: Text
    pretty_name: Text


class Kernel(Strict):
    release: Said
    version: Said
    command_line: Text


class Loaded(Strict):
    """The NVIDIA driver that the kernel runs."""

    version: Annotated[str, _matching(re.compile(r"\d+\.\d+(\.\d+)?"), "driver version")]
    open: bool


class Nvidia(Strict):
    """libraries: versions of the management library; empty: files of the driver's libraries without a byte."""

    loaded: OrAbsent[Loaded]
    libraries: list[Text]
    empty: list[Text] = []  # noqa: RUF012  facts from before there was the question


class File(Strict):
    sha256: Digest
    mode: Annotated[str, _matching(_MODE, "mode")]
    size: Number
    owner: Said


class Unit(Strict):
    """A unit of systemd; condition "no": systemd skipped it when it was started last, and called that a success."""

    load: Said
    active: Said
    sub: Said
    file: Text
    condition: Literal["yes", "no", "never checked"]
    reload_needed: bool


class ImageFile(Strict):
    size: Number
    sha256: Digest | None


class Images(Strict):
    """The squashfs files of a node; current: the name that the link for jobs leads to."""

    current: Said | None
    files: dict[Said, ImageFile]


class Reboot(Strict):
    required: bool
    by: list[Said]


class Time(Strict):
    utc_ms: Number
    offset_s: Annotated[int, Field(ge=-86400, le=86400)]


class _Facts(Strict):
    schema_: Literal[1] = Field(alias="schema")
    boot_id: Or[Said]
    hostname: Or[Said]
    serial: OrAbsent[Said]
    os: Or[Os]
    kernel: Or[Kernel]
    packages: Or[Annotated[tuple[Package, ...], PlainValidator(_packages)]]
    modules: Or[dict[Said, Text | None]]
    nvidia: Or[Nvidia]
    files: Or[dict[Said, OrAbsent[File]]]
    units: Or[dict[Said, OrAbsent[Unit]]]
    images: OrAbsent[Images]
    reboot: Or[Reboot]
    time: Or[Time]


@dataclass(frozen=True)
class Facts:
    """What one node said; document: the same as it was said, for the record."""

    boot_id: str | Unknown
    hostname: str | Unknown
    serial: str | Unknown | Absent
    os: Os | Unknown
    kernel: Kernel | Unknown
    packages: tuple[Package, ...] | Unknown
    modules: Mapping[str, str | None] | Unknown
    nvidia: Nvidia | Unknown
    files: Mapping[str, File | Unknown | Absent] | Unknown
    units: Mapping[str, Unit | Unknown | Absent] | Unknown
    images: Images | Unknown | Absent
    reboot: Reboot | Unknown
    time: Time | Unknown
    document: Mapping[str, Any] = field(repr=False, compare=False)

    def unknown(self) -> dict[str, str]:
        """The parts that could not be read, and why."""
        return {name: part.unknown for name in PARTS if isinstance(part := getattr(self, name), Unknown)}


PARTS = tuple(name for name in _Facts.model_fields if name != "schema_")


def parse_facts(data: bytes, node: str) -> Facts:
    """What a node's program printed.

    Raises:
        BadInput: it is no such document; every fault, named by the node.
    """
    return facts(_json(data, node), node)


def facts(document: Mapping[str, Any], node: str, *, packages: tuple[Package, ...] | Unknown | None = None) -> Facts:
    """A document of facts that was already parsed; packages: its own, where they were checked before.

    Raises:
        BadInput: it is none; every fault, named by the node.
    """
    try:
        checked = _Facts.model_validate(document if packages is None else {**document, "packages": packages})
    except ValidationError as fault:
        found = [Fault(f"facts of {node}", None, what, remedy) for what, remedy in _told(fault)]
        more = len(found) - SHOWN
        last = [Fault(f"facts of {node}", None, f"{more} faults more", ASK_AGAIN)] if more > 0 else []
        raise BadInput(found[:SHOWN] + last) from None
    return Facts(**{name: getattr(checked, name) for name in PARTS}, document=document)


def _told(error: ValidationError) -> Iterator[tuple[str, str]]:
    for detail in error.errors(include_url=False):
        path = tuple(part for part in detail["loc"] if part not in _TAGS and part != "[key]")
        context = detail.get("ctx", {})
        if detail["type"] == "site":
            what, remedy = str(context["found"]), str(context["remedy"]) or ASK_AGAIN
        elif detail["type"] == "missing":
            path, what, remedy = path[:-1], f'"{path[-1]}" is missing', ASK_AGAIN
        elif detail["type"] == "extra_forbidden":
            path, what, remedy = path[:-1], f'unknown key "{path[-1]}"', ASK_AGAIN
        else:
            what, remedy = f"{detail['msg']}, found {str(detail['input'])[:80]!r}", ASK_AGAIN
        yield (f"{dotted(path)}: {what}" if path else what), remedy


def _json(data: bytes, node: str) -> dict[str, Any]:
    def pairs(items: list[tuple[str, Any]]) -> dict[str, Any]:
        found = dict(items)
        if len(found) != len(items):
            raise ValueError("a key stands twice")
        return found

    def number(word: str) -> None:
        raise ValueError(f"{word[:40]} is no whole number")

    def refused(found: str) -> BadInput:
        said = data[:80].decode(errors="replace")
        return BadInput([Fault(f"facts of {node}", None, f"{found}; it begins with {said!r}", ASK_AGAIN)])

    try:
        document = json.loads(data.decode(), object_pairs_hook=pairs, parse_float=number, parse_constant=number)
    except UnicodeDecodeError as fault:
        raise refused(f"no UTF-8: byte {fault.start}") from None
    except (ValueError, RecursionError) as fault:  # JSONDecodeError is a ValueError
        raise refused(f"no JSON that can be read: {fault}" if data.strip() else "nothing was said") from None
    if not isinstance(document, dict):
        raise refused(f"{type(document).__name__}, no JSON object")
    return document
