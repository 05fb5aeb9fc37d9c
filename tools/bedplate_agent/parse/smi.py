"""`nvidia-smi -q -x`: XML, whose names are steadier than the columns of the text (which went from 38 to 55)."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import NamedTuple
from xml.etree import ElementTree

from bedplate_agent.parse.text import NotUnderstood, integer, shown

# What stands instead of a value when the driver could not read it: gcm and AWS's checkers passed these.
BROKEN = ("Unknown Error", "ERR!", "GPU requires reset", "GPU is lost", "Insufficient", "GPU access blocked")
NOTHING = ("N/A", "Not Supported", "Requested functionality has been deprecated", "Function Not Found")
_BUS = re.compile(r"[0-9A-F]{8}:[0-9A-F]{2}:[0-9A-F]{2}\.[0-9A-F]")
_QUANTITY = re.compile(r"(-?[0-9]+(?:\.[0-9]+)?) ?([A-Za-z%/()]*)")


class Field(Exception):
    """A field of a GPU says nothing; broken: the driver itself could not read it."""

    def __init__(self, message: str, *, broken: bool = False) -> None:
        super().__init__(message)
        self.broken = broken


class Gpu(NamedTuple):
    """One GPU; number: its place in the answer, which is the order of the PCI bus."""

    number: int
    bus: str
    element: ElementTree.Element

    @property
    def name(self) -> str:
        return f"gpu{self.number}"

    def has(self, *paths: str) -> bool:
        return any(self.element.find(path) is not None for path in paths)

    def said(self, *paths: str) -> str:
        """The first of the paths that is there, as it stands.

        Raises:
            Field: none is there, it is empty, or the driver could not read it.
        """
        for path in paths:
            found = self.element.find(path)
            if found is not None:
                if len(found):
                    raise Field(f"{path} has no value of its own")
                text = bare(found.text or "")
                if not text:
                    raise Field(f"{path} is empty")
                if text.startswith(BROKEN):
                    raise Field(f'{path} says "{text}"', broken=True)
                return text
        raise Field(f"{paths[0]} is not there")

    def text(self, *paths: str) -> str:
        """The same, where the driver supports it.

        Raises:
            Field: as said, or it says N/A.
        """
        found = self.said(*paths)
        if found in NOTHING:
            raise Field(f'{paths[0]} says "{found}", and this model has it')
        return found

    def one_of(self, words: tuple[str, ...], *paths: str) -> str:
        """One of the words that are known here; another one is none that can be judged."""
        found = self.text(*paths)
        if found not in words:
            raise Field(f"{paths[0]} says {shown(found)}: none of {', '.join(words)}")
        return found

    def count(self, *paths: str) -> int:
        found = self.text(*paths)
        try:
            return integer(found, paths[0])
        except NotUnderstood as fault:
            raise Field(str(fault)) from None

    def quantity(self, unit: str, *paths: str) -> float:
        """A number with its unit: `31 C`."""
        found = self.text(*paths)
        match = _QUANTITY.fullmatch(found)
        if match is None or match[2] != unit:
            raise Field(f"{paths[0]} says {shown(found)}: no number of {unit}")
        return float(match[1])

    def leaves(self) -> Iterator[tuple[str, str]]:
        """Every field with its value: `ecc_errors/volatile/dram_uncorrectable`."""
        return _leaves(self.element, "")


class Smi(NamedTuple):
    driver: str
    gpus: list[Gpu]
    processes: list[str]
    """Names of the processes on any GPU, with the pid."""


def parse(text: str) -> Smi:
    if "<!ENTITY" in text:
        raise NotUnderstood("XML with entities")
    try:
        root = ElementTree.fromstring(text)  # noqa: S314
    except ElementTree.ParseError as fault:
        raise NotUnderstood(f"no XML: {fault}") from None
    if root.tag != "nvidia_smi_log":
        raise NotUnderstood(f"the root is {root.tag}, not nvidia_smi_log")
    attached = integer((root.findtext("attached_gpus") or "").strip(), "attached_gpus")
    gpus = []
    for index, element in enumerate(root.findall("gpu")):
        bus = element.get("id", "")
        if not _BUS.fullmatch(bus):
            raise NotUnderstood(f"gpu {index} has the id {shown(bus)}")
        gpus.append(Gpu(index, bus, element))
    if len(gpus) != attached or not gpus:
        raise NotUnderstood(f"attached_gpus is {attached}, and {len(gpus)} are described")
    if len({gpu.bus for gpu in gpus}) != len(gpus):
        raise NotUnderstood("two GPUs have one id")
    driver = (root.findtext("driver_version") or "").strip()
    if not re.fullmatch(r"[0-9]+\.[0-9]+(\.[0-9]+)?", driver):
        raise NotUnderstood(f"driver_version is {shown(driver)}")
    processes = [
        f"{gpu.name} {(entry.findtext('pid') or '?').strip()} {(entry.findtext('process_name') or '?').strip()}"
        for gpu in gpus
        for entry in gpu.element.iterfind("processes/process_info")
    ]
    return Smi(driver, gpus, processes)


def bare(text: str) -> str:
    """A value without the brackets that some drivers put around N/A."""
    text = text.strip()
    return text[1:-1] if text.startswith("[") and text.endswith("]") else text


def _leaves(element: ElementTree.Element, path: str) -> Iterator[tuple[str, str]]:
    for child in element:
        place = f"{path}/{child.tag}" if path else child.tag
        if len(child):
            yield from _leaves(child, place)
        else:
            yield place, bare(child.text or "")
