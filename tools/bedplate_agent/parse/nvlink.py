"""`nvidia-smi nvlink -s` and `-e`: links of each GPU, their speed, their error counters.

A link that is down is written in four ways: "<inactive>", "all links are inactive", a GPU without lines, an error of
NVML. The first is a link without a rate here; the others leave a GPU without links, which no check passes.
"""

from __future__ import annotations

import re
from typing import NamedTuple

from bedplate_agent.parse.text import NotUnderstood, integer, shown

_GPU = re.compile(r"GPU ([0-9]+): (.+) \(UUID: (GPU-[0-9a-f-]{36})\)")
_RATE = re.compile(r"\s+Link ([0-9]+): (?:([0-9]+(?:\.[0-9]+)?) GB/s|<inactive>)")
_DOWN = re.compile(r"\s*(?:Unable to retrieve NVLink information as )?all links are in[aA]ctive\.?", re.IGNORECASE)
_ERROR = re.compile(
    r"\s+Link ([0-9]+): ([A-Za-z][A-Za-z0-9 /_()-]*?): ([0-9]+(?:\.[0-9]+)?(?:e[+-]?[0-9]+)?)"
)  # a count, or a bit error rate: 15e-255
_ERROR_NONE = re.compile(r"\s+Link ([0-9]+): ([A-Za-z][A-Za-z0-9 /_()-]*?): (?:N/A|Not Supported)")


class Links(NamedTuple):
    """One GPU: link number -> GB/s in one direction, None where it is inactive."""

    gpu: int
    rates: dict[int, float | None]


class Counters(NamedTuple):
    """One GPU: (link number, name of the counter) -> count since the driver was loaded, or rate."""

    gpu: int
    counts: dict[tuple[int, str], float]
    links: frozenset[int]


def parse_status(text: str) -> list[Links]:
    found: list[Links] = []
    for line in text.splitlines():
        if not line.strip():
            continue
        if gpu := _GPU.fullmatch(line.rstrip()):
            found.append(Links(_next(gpu[1], len(found)), {}))
        elif not found:
            raise NotUnderstood(f"no GPU before {shown(line)}")
        elif link := _RATE.fullmatch(line.rstrip()):
            number = integer(link[1], "link")
            if number in found[-1].rates:
                raise NotUnderstood(f"GPU {found[-1].gpu}: link {number} twice")
            found[-1].rates[number] = float(link[2]) if link[2] else None
        elif not _DOWN.fullmatch(line):
            raise NotUnderstood(f"GPU {found[-1].gpu}: {shown(line)}")
    if not found:
        raise NotUnderstood("no GPU in it")
    return found


def parse_errors(text: str) -> list[Counters]:  # noqa: C901  a table of forms
    """Every link of a GPU must have the same counters: fewer of them are a text that was cut."""
    found: list[tuple[int, dict[tuple[int, str], float], dict[int, set[str]]]] = []
    for line in text.splitlines():
        if not line.strip():
            continue
        if gpu := _GPU.fullmatch(line.rstrip()):
            found.append((_next(gpu[1], len(found)), {}, {}))
            continue
        if not found:
            raise NotUnderstood(f"no GPU before {shown(line)}")
        index, counts, names = found[-1]
        said = _ERROR.fullmatch(line.rstrip())
        none = said or _ERROR_NONE.fullmatch(line.rstrip())
        if none is None:
            if not _DOWN.fullmatch(line):
                raise NotUnderstood(f"GPU {index}: {shown(line)}")
            continue
        number, name = integer(none[1], "link"), none[2]
        if name in names.setdefault(number, set()):
            raise NotUnderstood(f"GPU {index}: link {number} has two counters {name}")
        names[number].add(name)
        if said is not None:
            counts[number, name] = float(said[3])
    if not found:
        raise NotUnderstood("no GPU in it")
    kinds = {frozenset(of) for _, _, names in found for of in names.values()}
    if len(kinds) > 1:
        raise NotUnderstood("links have different counters: cut off")
    return [Counters(index, counts, frozenset(names)) for index, counts, names in found]


def _next(text: str, wanted: int) -> int:
    index = integer(text, "GPU")
    if index != wanted:
        raise NotUnderstood(f"GPU {index} where GPU {wanted} should stand")
    return index
