"""The table of nccl-tests: columns by the header's names, since versions have more or fewer of them."""

from __future__ import annotations

import re
from typing import NamedTuple

from bedplate_agent.parse.text import NotUnderstood, integer, number, shown

_RANK = re.compile(r"#\s+Rank\s+([0-9]+)\s+.*\bdevice\s+([0-9]+)\s+\[.*")
_ROW = re.compile(r"\s*[0-9]+\s+[0-9]+\s+[a-z]")


class Row(NamedTuple):
    """One size: bytes; microseconds; GB/s; wrong: results that were not what they should be, None where not checked."""

    size: int
    time_us: float
    algorithm_gbs: float
    bus_gbs: float
    wrong: int | None


class Run(NamedTuple):
    """rows: out of place and in place of each size, ascending."""

    ranks: int
    out_of_bounds: int
    rows: list[Row]


def parse(text: str) -> Run:
    lines = text.splitlines()
    columns = next((line.split()[1:] for line in lines if re.match(r"#\s+size\s+count\s+type", line)), None)
    if columns is None or "busbw" not in columns or "time" not in columns:
        raise NotUnderstood("no header of a table of results")
    first = columns.index("time")
    halves = _halves(columns[first:])
    if not all({"time", "algbw", "busbw"} <= set(names) for _, names in halves):
        raise NotUnderstood(f"a header without time, algbw and busbw: {shown(' '.join(columns))}")
    rows: list[Row] = []
    for line in lines:
        if line.startswith("#") or not _ROW.match(line):
            continue  # NCCL's own messages lie between the rows
        words = line.split()
        if len(words) != len(columns):
            raise NotUnderstood(f"a row with {len(words)} of {len(columns)} columns: {shown(line)}")
        for start, names in halves:
            rows.append(_row(integer(words[0], "size"), names, words[first + start : first + start + len(names)]))
    ranks = {integer(match[1], "rank") for match in map(_RANK.match, lines) if match}
    bounds = [
        match
        for line in lines
        if (match := re.fullmatch(r"#\s*Out of bounds values : (-?[0-9]+) (OK|FAILED)\s*", line))
    ]
    ended = any(re.fullmatch(r"#\s*Avg bus bandwidth\s*: [0-9.]+\s*", line) for line in lines)
    if any("Collective test starting" in line for line in lines):
        ended = ended and any("Collective test concluded" in line for line in lines)
    else:
        ended = ended and lines[-1].strip() == "#"
    if len(bounds) != 1 or not ended or not rows or ranks != set(range(len(ranks))):
        raise NotUnderstood("it did not come to its end")
    return Run(len(ranks), int(bounds[0][1]), rows)


def _halves(names: list[str]) -> list[tuple[int, list[str]]]:
    """Out of place and in place: each begins with its time."""
    starts = [at for at, name in enumerate(names) if name == "time"]
    return [(at, names[at:end]) for at, end in zip(starts, [*starts[1:], len(names)], strict=True)]


def _row(size: int, names: list[str], words: list[str]) -> Row:
    said = dict(zip(names, words, strict=True))
    wrong = said.get("#wrong", said.get("error", "N/A"))
    return Row(
        size, number(said["time"], "time"), number(said["algbw"], "algbw"), number(said["busbw"], "busbw"),
        None if wrong == "N/A" else int(number(wrong, "#wrong") > 0),
    )  # fmt: skip
