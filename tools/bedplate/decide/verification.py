"""Whether a node equals its lock: rows of single checks -> one verdict.

Invariants
- Silence is no pass: a node without rows, or with nothing but skipped ones, is an ERROR.
- FAIL says the node differs; ERROR says that nothing is known; UNREACHABLE is an ERROR with one reason.
- The facts (hashes of what is really there) travel with the verdict, so that two states can be compared later.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

PASS, FAIL, ERROR, SKIP, UNREACHABLE = "PASS", "FAIL", "ERROR", "SKIP", "UNREACHABLE"


@dataclass(frozen=True)
class Row:
    """One check on one node."""

    node: str
    check: str
    layer: str
    verdict: str
    why: str = ""

    def as_dict(self) -> dict[str, str]:
        return {"check": self.check, "layer": self.layer, "verdict": self.verdict, "why": self.why}


@dataclass(frozen=True)
class Verification:
    """What a verification of one node found; environment: name of the lock it was held against."""

    node: str
    environment: str
    verdict: str
    why: str
    rows: tuple[Row, ...] = ()
    facts: Mapping[str, str] = field(default_factory=dict)

    def body(self) -> dict[str, Any]:
        """What the ledger keeps."""
        return {
            "environment": self.environment, "verdict": self.verdict, "why": self.why,
            "checks": [row.as_dict() for row in self.rows], "facts": dict(self.facts),
        }  # fmt: skip


def judge_node(node: str, environment: str, rows: Sequence[Row], facts: Mapping[str, str]) -> Verification:
    """One verdict for one node."""
    by = {
        verdict: [row for row in rows if row.verdict == verdict] for verdict in (PASS, FAIL, ERROR, SKIP, UNREACHABLE)
    }
    if by[UNREACHABLE]:
        verdict, why = UNREACHABLE, by[UNREACHABLE][0].why
        rows = by[UNREACHABLE][:1]  # one row, not one for each check that could not be asked
    elif by[FAIL]:
        verdict, why = FAIL, _why(by[FAIL])
    elif by[ERROR] or len(by[PASS]) + len(by[SKIP]) != len(rows):
        verdict, why = ERROR, _why(by[ERROR]) or "a check ended without a verdict"
    elif not by[PASS]:
        verdict, why = ERROR, "no check gave a verdict"
    else:
        verdict, why = PASS, ""
    return Verification(node, environment, verdict, why, tuple(rows), facts)


def judge_all(
    asked: Mapping[str, str], rows: Iterable[Row], facts: Mapping[str, Mapping[str, str]], trouble: str = ""
) -> dict[str, Verification]:
    """A verdict for every node that was asked for (node -> environment); trouble: why rows may be missing."""
    of: dict[str, list[Row]] = {node: [] for node in asked}
    for row in rows:
        of.setdefault(row.node, []).append(row)
    result = {}
    for node, environment in asked.items():
        verification = judge_node(node, environment, of[node], facts.get(node, {}))
        if not of[node] and trouble:
            verification = Verification(node, environment, ERROR, f"no result: {trouble}")
        result[node] = verification
    return result


def _why(rows: Sequence[Row]) -> str:
    return "; ".join(f"{row.layer} {row.check}: {row.why}" for row in rows)
