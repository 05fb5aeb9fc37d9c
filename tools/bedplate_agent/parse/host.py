"""Small answers of the host: mounts, a write, munge, a log's end, a burn, limits of a job step."""

from __future__ import annotations

import re
from typing import NamedTuple

from bedplate_agent.parse.listing import parse as parse_listing
from bedplate_agent.parse.text import NotUnderstood, integer, number, shown

_BURN = re.compile(r"\s*GPU ([0-9]+): (OK|FAULTY)")
_WRITE = re.compile(r"\s*([0-9]+)\s+([0-9]+)\s+([0-9.]+)\s+([0-9.]+)\s+([0-9.]+)\s*")


class Mount(NamedTuple):
    """A file system; mounted: whether something is mounted right there."""

    path: str
    mounted: bool
    kind: str
    used_percent: float
    inodes_percent: float
    writable: bool


def parse_mount(text: str) -> Mount:
    found = parse_listing(text)
    blocks, free = integer(found.need("blocks"), "blocks"), integer(found.need("free"), "free")
    files, spare = integer(found.need("files"), "files"), integer(found.need("files_free"), "files_free")
    if free > blocks or spare > files:
        raise NotUnderstood("more is free than there is")
    return Mount(
        found.need("path"), _truth(found.need("mounted")), found.need("type"),
        100 * (1 - free / blocks) if blocks else 0.0, 100 * (1 - spare / files) if files else 0.0,
        _truth(found.need("writable")),
    )  # fmt: skip


class Look(NamedTuple):
    """Counters as an earlier run on this node saw them."""

    boot_id: str
    uptime_s: float
    counts: dict[str, int]


def parse_history(text: str) -> list[Look]:
    """Oldest first; none on a node that has not looked at itself before."""
    found = []
    listing = parse_listing(text)
    for number_ in listing.names():
        said = listing.under(number_)
        counts = {key[6:]: integer(value, key) for key, value in said.items() if key.startswith("count/")}
        if not {"boot_id", "uptime_s"} <= said.keys():
            raise NotUnderstood("an earlier look without boot_id and uptime_s")
        found.append(Look(said["boot_id"], number(said["uptime_s"], "uptime_s"), counts))
    return found


def parse_fabric_version(text: str) -> str:
    """`nv-fabricmanager --version`."""
    match = re.fullmatch(r"Fabric Manager version is : ([0-9]+\.[0-9]+(?:\.[0-9]+)?)\s*", text)
    if match is None:
        raise NotUnderstood(f"no version of Fabric Manager: {shown(text)}")
    return match[1]


def parse_write(text: str) -> int:
    """Milliseconds that a small write with fsync took."""
    return integer(parse_listing(text).need("ms"), "ms")


def parse_munge(text: str) -> str:
    """The status that `munge -n -d` and unmunge agreed on."""
    found = parse_listing(text)
    return found.need("status")


def parse_site(text: str) -> dict[str, tuple[int | None, str]]:
    """Name of a check of the site -> its exit code (none: it did not end), and its first line."""
    listing = parse_listing(text)
    if not listing.need("checks").startswith("/"):
        raise NotUnderstood("it does not say where the site's checks lie")
    found: dict[str, tuple[int | None, str]] = {}
    for name, value in listing.under("site").items():
        code, _, said = value.partition(" ")
        found[name] = (None if code == "late" else integer(code, name), said)
    return found


def parse_log_tail(text: str) -> list[str]:
    """Lines with errors that a log has since its program began."""
    found = parse_listing(text)
    if found.need("readable") != "1":
        raise NotUnderstood(found.get("why", "it cannot be read"))
    return [value for key, value in found.items() if key.startswith("error/")]


def parse_burn(text: str) -> dict[int, str]:
    """`gpu_burn`: GPU -> OK or FAULTY, from its summary at the end."""
    _, tested, summary = text.rpartition("Tested ")
    head = re.match(r"([0-9]+) GPUs:\n", summary)
    if not tested or head is None:
        raise NotUnderstood("no summary: it did not come to its end")
    lines = summary[head.end() :].splitlines()
    found = {}
    for line in lines:
        match = _BURN.fullmatch(line.rstrip())
        if match is None or int(match[1]) in found:
            raise NotUnderstood(f"in the summary: {shown(line)}")
        found[int(match[1])] = match[2]
    if len(found) != integer(head[1], "GPUs"):
        raise NotUnderstood(f"{head[1]} GPUs were tested, {len(found)} are told: cut off")
    return found


def parse_ib_write(text: str) -> float:
    """`ib_write_bw --report_gbits`: the average in Gb/s of its last row."""
    lines = text.splitlines()
    heads = [at for at, line in enumerate(lines) if "BW average[Gb/sec]" in line]
    if len(heads) != 1:
        raise NotUnderstood("no table with BW average[Gb/sec]")
    rows = []
    for line in lines[heads[0] + 1 :]:
        if match := _WRITE.fullmatch(line):
            rows.append(number(match[4], "BW average"))
        elif line.strip("- \t"):
            raise NotUnderstood(f"in the table: {shown(line)}")
    if not rows or not re.fullmatch(r"-{20,}", lines[-1].strip()):
        raise NotUnderstood("the table is cut off")
    return rows[-1]


def parse_limits(text: str) -> dict[str, str]:
    """/proc/self/limits of a job step: name -> soft limit."""
    lines = text.splitlines()
    if not lines or not lines[0].startswith("Limit "):
        raise NotUnderstood("no header of limits")
    found = {}
    for line in lines[1:]:
        match = re.fullmatch(r"(Max [a-z ]+?)\s+(unlimited|[0-9]+)\s+(unlimited|[0-9]+)(\s+[a-z]+)?\s*", line)
        if match is None:
            raise NotUnderstood(f"no limit: {shown(line)}")
        found[match[1]] = match[2]
    if "Max realtime timeout" not in found:  # the last one that the kernel writes
        raise NotUnderstood("limits are missing: cut off")
    return found


def _truth(text: str) -> bool:
    if text not in ("0", "1"):
        raise NotUnderstood(f"{shown(text)} is neither 0 nor 1")
    return text == "1"
