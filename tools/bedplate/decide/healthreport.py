"""What the timer of a node wrote, as the controller reads it: a result and its age, or why there is none.

- The file is one look: every row has the same head, and the last one is whole.
- It is of this boot of the node. Age is counted in the node's uptime, and never by its clock.
- An old one is none: a node whose timer has stopped is not healthy, it is silent.
"""

import json
from collections.abc import Collection
from typing import Any, NamedTuple

from bedplate.decide.healthresult import NoResult, checked
from bedplate_agent.sinks import Result
from bedplate_agent.verdict import Finding

FILE = "/run/bedplate-health/results.jsonl"
COMMAND = f"cat /proc/sys/kernel/random/boot_id /proc/uptime {FILE}"
HEAD = ("schema", "run", "node", "environment", "profile", "boot_id", "at", "node_verdict", "node_ms", "uptime_s")


class Report(NamedTuple):
    """What the last look found; age_s: how long ago it ended."""

    age_s: int
    result: Result


def report(data: bytes, node: str, asked: Collection[str], *, oldest_s: int) -> Report:
    """What COMMAND printed on a node.

    asked: the checks that the timer makes; oldest_s: what is older says nothing any more.

    Raises:
        NoResult: nothing is known of the node, with why.
    """
    text = data.decode("utf-8", "replace")
    boot, _, rest = text.partition("\n")
    uptime, _, rest = rest.partition("\n")
    rows = _rows(rest)
    head = {name: rows[0].get(name) for name in HEAD}
    if head["boot_id"] != boot.strip():
        raise NoResult(f"{FILE} is of an earlier boot")
    age_s = _age(uptime, head["uptime_s"])
    if age_s > oldest_s:
        raise NoResult(f"{FILE} is {age_s} s old, {oldest_s} at most (systemctl status bedplate-health.timer)")
    if any({name: row.get(name) for name in HEAD} != head for row in rows):
        raise NoResult(f"{FILE} has rows of several looks")
    run = head["run"]
    if not isinstance(run, str) or not run:
        raise NoResult(f"{FILE} does not say of which run it is")
    document = {
        **head, "ms": head["node_ms"],
        "findings": [{name: row[name] for name in Finding._fields if name in row} for row in rows],
    }  # fmt: skip
    return Report(age_s, checked(document, node, asked, run))


def _rows(text: str) -> list[dict[str, Any]]:
    if not text.endswith("\n"):
        raise NoResult(f"{FILE} is cut off" if text else f"{FILE} is empty")
    rows = []
    for line in text.splitlines():
        try:
            row = json.loads(line)
        except (ValueError, RecursionError):
            raise NoResult(f"{FILE} is damaged: {line[:80]!r}") from None
        if not isinstance(row, dict):
            raise NoResult(f"{FILE} is damaged: {line[:80]!r}")
        rows.append(row)
    return rows


def _age(uptime: str, written: object) -> int:
    try:
        now_s = int(float(uptime.split(maxsplit=1)[0]))
    except (ValueError, IndexError, OverflowError):
        raise NoResult(f"/proc/uptime says {uptime[:40]!r}") from None
    if not isinstance(written, int) or isinstance(written, bool) or written < 0:
        raise NoResult(f"{FILE} has no time")
    if written > now_s:
        raise NoResult(f"{FILE} is from the future")
    return now_s - written
