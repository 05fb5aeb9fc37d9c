"""`journalctl -k -b -o json --show-cursor`: the kernel log of this boot, and what in it concerns health.

The cursor is its last line: a log without one was cut, and a cut log proves nothing.
"""

from __future__ import annotations

import re
from typing import NamedTuple

from bedplate_agent.parse.text import NotUnderstood, document, integer, shown

# Lines that no check reads are not decoded: a boot has 10,000 of them.
INTERESTING = re.compile(
    r"NVRM|SXid|fallen off|mlx5|[Oo]ut of memory|EDAC|[Mm]achine [Cc]heck|Hardware Error|I/O error|nvme|"
    r"blocked for more than|Linux version|AER|ib_umad"
)
_XID = re.compile(r"NVRM: Xid \((?:PCI:)?([0-9a-fA-F:.]+)\): ([0-9]+),?\s*(.*)", re.DOTALL)
_XID5 = re.compile(r"(\w+)\s+(Fatal|Nonfatal)\s+XC([0-9]+)\s+i([0-9]+)\s+Link (-?[0-9]+)\s+\(([0-9a-fx ]+)\)")
_SXID = re.compile(r"(nvidia-nvswitch[0-9]+): SXid \((?:PCI:)?([0-9a-fA-F:.]+)\): ([0-9]+), (.*)", re.DOTALL)
_ACTION = re.compile(r"GPU recovery action changed from 0x[0-9a-fA-F]+ \(.*?\) to 0x([0-9a-fA-F]+) \((.*?)\)")


class Xid(NamedTuple):
    """severity, mnemonic, link: of NVLink5's own errors (144 to 150), else "", "", None."""

    at_us: int
    bus: str
    code: int
    text: str
    mnemonic: str = ""
    severity: str = ""
    link: int | None = None


class Message(NamedTuple):
    at_us: int
    text: str


class Log(NamedTuple):
    xids: list[Xid]
    sxids: list[Xid]
    """bus: the switch; severity: Fatal or Nonfatal."""
    messages: list[Message]
    """Every interesting message, in order."""
    first_us: int
    whole: bool
    """Whether it begins with the kernel's first message: a journal forgets, and then tells of a part of the boot."""


def parse(text: str) -> Log:  # noqa: C901  a table of forms
    lines = text.split("\n")[:-1]
    if not re.fullmatch(r"-- cursor: s=[0-9a-f]{32};i=[0-9a-f]+;b=[0-9a-f]{32};.+", lines[-1]):
        raise NotUnderstood("it does not end with a cursor: cut off")
    messages: list[Message] = []
    for line in lines[:-1]:
        if not (line.startswith("{") and line.endswith("}")):
            raise NotUnderstood(f"no entry of a journal: {shown(line)}")
        if INTERESTING.search(line):
            messages.append(_message(line))
    if len(lines) < 2:  # noqa: PLR2004  an entry and the cursor
        raise NotUnderstood("it has no entry")
    whole = any("Linux version" in message.text for message in messages)
    xids, sxids = [], []
    for message in messages:
        if found := _XID.search(message.text):
            xids.append(_xid(message.at_us, found))
        elif found := _SXID.search(message.text):
            code = integer(found[3], "SXid")
            severity = found[4].partition(",")[0].strip()
            if severity not in ("Fatal", "Non-fatal"):
                continue  # the lines with register contents that follow each of them
            said = "Fatal" if severity == "Fatal" else "Nonfatal"
            sxids.append(Xid(message.at_us, found[1], code, found[4], severity=said))
        elif "fallen off the bus" in message.text:
            # Without an Xid of its own: leptonai/gpud#1209.
            where = re.search(r"([0-9a-fA-F]{4,8}:[0-9a-fA-F]{2}:[0-9a-fA-F]{2}(?:\.[0-9a-fA-F])?)", message.text)
            xids.append(Xid(message.at_us, short_bus(where[1]) if where else "", 79, message.text))
    return Log(xids, sxids, messages, _message(lines[0]).at_us, whole)


def recovery_action(text: str) -> tuple[int, str] | None:
    """What Xid 154 asks for: its number and name."""
    found = _ACTION.search(text)
    return (int(found[1], 16), found[2]) if found else None


def short_bus(text: str) -> str:
    """A bus address without its domain's zeros and its function: 1b:00 of 0000:1B:00.0."""
    parts = text.lower().partition(".")[0].split(":")
    domain = parts[-3].lstrip("0") if len(parts) > 2 else ""  # noqa: PLR2004
    return ":".join([*([domain] if domain else []), *parts[-2:]])


def _xid(at_us: int, found: re.Match[str]) -> Xid:
    code, rest = integer(found[2], "Xid"), found[3].strip()
    detail = _XID5.search(rest)
    if detail is None:
        return Xid(at_us, short_bus(found[1]), code, rest)
    return Xid(at_us, short_bus(found[1]), code, rest, detail[1], detail[2], int(detail[5]))


def _message(line: str) -> Message:
    entry = document(line, "an entry of the journal")
    if not isinstance(entry, dict) or not isinstance(entry.get("__REALTIME_TIMESTAMP"), str):
        raise NotUnderstood(f"an entry of the journal without a time: {shown(line)}")
    text = entry.get("MESSAGE")
    if isinstance(text, list):  # bytes that are no UTF-8
        try:
            text = bytes(text).decode("utf-8", "replace")
        except (TypeError, ValueError):
            text = None
    if not isinstance(text, str):
        raise NotUnderstood(f"an entry of the journal without a message: {shown(line)}")
    return Message(integer(entry["__REALTIME_TIMESTAMP"], "__REALTIME_TIMESTAMP"), text)
