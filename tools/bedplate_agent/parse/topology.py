"""`nvidia-smi topo -m` and `topo -p2p`: who reaches whom, and how."""

from __future__ import annotations

import re
from typing import NamedTuple

from bedplate_agent.parse.text import NotUnderstood, integer, shown

_STEER = re.compile(r"\x1b\[[0-9;]*m")  # the header is underlined even in a pipe
_CELL = re.compile(r"X|NV[0-9]+|PIX|PXB|PHB|NODE|SYS")
_NIC = re.compile(r"\s+(NIC[0-9]+): ([A-Za-z0-9_]+)\s*")
_P2P = re.compile(r"X|OK|CNS|GNS|TNS|NS|U|DR|DS")


class Topology(NamedTuple):
    """cells: (row, column) -> X, NV18, PIX and so on; nics: NIC0 -> mlx5_0."""

    gpus: int
    cells: dict[tuple[str, str], str]
    nics: dict[str, str]


def parse(text: str) -> Topology:
    lines = [_STEER.sub("", line).rstrip() for line in text.splitlines()]
    start = next((at for at, line in enumerate(lines) if re.match(r"\s*GPU0\b", line)), None)
    if start is None:
        raise NotUnderstood("no header with GPU0")
    # "CPU Affinity" and what follows it are columns with blanks in their names.
    columns = re.findall(r"(?:GPU|NIC)[0-9]+(?![0-9])", lines[start].partition("CPU")[0])
    gpus = sum(column.startswith("GPU") for column in columns)
    cells: dict[tuple[str, str], str] = {}
    for row, line in zip(columns, lines[start + 1 :], strict=False):
        words = line.split()
        if not words or words[0] != row or len(words) <= len(columns):
            raise NotUnderstood(f"no row of {row}: {shown(line)}")
        for column, cell in zip(columns, words[1:], strict=False):
            if not _CELL.fullmatch(cell):
                raise NotUnderstood(f"{row} to {column}: {shown(cell)}")
            cells[row, column] = cell
    if len(cells) != len(columns) ** 2 or columns[:gpus] != [f"GPU{n}" for n in range(gpus)]:
        raise NotUnderstood("rows and columns do not agree: cut off")
    rest = lines[start + 1 + len(columns) :]
    if not any(line.strip() == "Legend:" for line in rest) or not any(re.match(r"\s+NV#\s+=", line) for line in rest):
        raise NotUnderstood("it does not tell its legend: cut off")
    nics = {match[1]: match[2] for match in map(_NIC.fullmatch, rest) if match}
    wanted = [column for column in columns if column.startswith("NIC")]
    if list(nics) != wanted:
        raise NotUnderstood(f"the legend names {len(nics)} adapters of {len(wanted)}: cut off")
    return Topology(gpus, cells, nics)


def parse_p2p(text: str) -> dict[tuple[int, int], str]:
    """(from, to) -> OK, or why not; X on the diagonal."""
    lines = [_STEER.sub("", line).rstrip() for line in text.splitlines()]
    start = next((at for at, line in enumerate(lines) if re.match(r"\s*GPU0\b", line)), None)
    if start is None:
        raise NotUnderstood("no header with GPU0")
    columns = lines[start].split()
    cells: dict[tuple[int, int], str] = {}
    for row, line in enumerate(lines[start + 1 : start + 1 + len(columns)]):
        words = line.split()
        if len(words) != len(columns) + 1 or words[0] != f"GPU{row}" or columns[row] != f"GPU{row}":
            raise NotUnderstood(f"no row of GPU{row}: {shown(line)}")
        for column, cell in enumerate(words[1:]):
            if not _P2P.fullmatch(cell):
                raise NotUnderstood(f"GPU{row} to GPU{column}: {shown(cell)}")
            cells[row, column] = cell
    if len(cells) != len(columns) ** 2 or not any(line.strip() == "Legend:" for line in lines):
        raise NotUnderstood("rows, columns and legend do not agree: cut off")
    if not any(re.match(r"\s+U\s+=", line) for line in lines):
        raise NotUnderstood("the legend is cut off")
    return cells


def per_direction(cell: str) -> int:
    """Links of a cell such as NV18; 0 of any other."""
    return integer(cell[2:], "links") if cell.startswith("NV") else 0
