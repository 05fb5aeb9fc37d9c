"""What the agent of a node answered, checked before anything believes it; and the rows of nodes that did not answer.

- A result is complete: every check that was asked has a finding, or is ERROR because it was silent.
- The verdict of a node is computed here, from its findings: what it says of itself does not count.
- A node that gave no result has one row, ERROR, that says why.
"""

import json
from collections.abc import Collection, Mapping
from typing import Any

from bedplate_agent.sinks import Result, culprit
from bedplate_agent.verdict import ERROR, PASS, SEVERITY, WARN, Finding, worst

ANSWERS = "node.answers"
SCHEMA = 1
LONGEST = 2000


class NoResult(Exception):
    """The answer is none, with why."""


def lost(node: str, why: str, *, run: str = "", environment: str = "") -> Result:
    """The row of a node of which nothing is known."""
    return Result(node, ERROR, (Finding(ERROR, _plain(why), check=ANSWERS),), run, environment)


def unwell(name: str, health: Result | None) -> list[str]:
    """Why a look at a node is no proof that it is well."""
    if health is None:
        return [f"{name} was not looked at: nothing is known of its health"]
    if health.verdict in (PASS, WARN):
        return []
    named = culprit(health.findings)
    assert named is not None  # noqa: S101  a verdict has a finding
    return [f"{name} is {health.verdict}: {named.check} {named.entity} {named.message}".replace("  ", " ")]


def read(data: bytes, node: str, asked: Collection[str], run: str) -> tuple[Result, Mapping[str, Any]]:
    """A result, and what each probe said if that was asked for; asked: ids of the checks.

    Raises:
        NoResult: the answer is no result of this run on this node.
    """
    try:
        document = json.loads(data)
    except (ValueError, RecursionError) as fault:
        raise NoResult(f"its answer is no JSON: {str(fault)[:100]}") from None
    result = checked(document, node, asked, run)
    raws = document.get("raws", {})
    return result, raws if isinstance(raws, dict) else {}


def checked(document: Any, node: str, asked: Collection[str], run: str) -> Result:
    """A result out of a document that was JSON.

    Raises:
        NoResult: it is none of this run on this node.
    """
    if not isinstance(document, dict) or document.get("schema") != SCHEMA:
        raise NoResult(f"its answer is no result of schema {SCHEMA}")
    for key, wanted in (("node", node), ("run", run)):
        if document.get(key) != wanted:
            raise NoResult(f"its answer is of {key} {str(document.get(key))[:80]!r}, not {wanted!r}")
    rows = document.get("findings")
    if not isinstance(rows, list):
        raise NoResult("its answer has no findings")
    findings = [_finding(row) for row in rows]
    told = {finding.check for finding in findings}
    if unknown := sorted(told - set(asked)):
        raise NoResult(f"its answer has checks that were not asked: {', '.join(unknown)[:200]}")
    findings += [Finding(ERROR, "the agent said nothing of it", check=check) for check in sorted(set(asked) - told)]
    texts = {key: document.get(key, "") for key in ("environment", "profile", "boot_id", "at")}
    if not all(isinstance(text, str) for text in texts.values()) or not isinstance(document.get("ms"), int):
        raise NoResult("its answer is damaged: environment, profile, boot_id, at or ms")
    return Result(
        node, worst(findings), tuple(findings), run, texts["environment"], texts["profile"], texts["boot_id"],
        texts["at"], document["ms"],
    )  # fmt: skip


def _finding(row: object) -> Finding:
    if not isinstance(row, dict) or row.keys() != set(Finding._fields):
        raise NoResult(f"a finding of another form: {str(row)[:100]}")
    if not all(isinstance(text, str) for text in row.values()):
        raise NoResult(f"a finding with something else than texts: {str(row)[:100]}")
    if row["verdict"] not in SEVERITY:
        raise NoResult(f"no verdict: {row['verdict'][:40]!r}")
    return Finding(**{key: _plain(text) for key, text in row.items()})


def _plain(text: str) -> str:
    return "".join(letter if letter.isprintable() else "?" for letter in text[:LONGEST])
