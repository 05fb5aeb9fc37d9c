"""Tells results: JSON lines, text, JUnit, Prometheus, Slurm's reason, the verdict file of a node. All pure."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Sequence
from typing import Any, NamedTuple

from bedplate_agent.verdict import ERROR, FAIL, PASS, SEVERITY, SKIP, WARN, Finding, by_severity, order

REASON_LENGTH = 60  # `sinfo -R` and Slurm's own tools cut longer ones
PREFIX = "HC:"  # of the reasons of drains that are ours, and nobody else's
RUN_LENGTH = 12


class Result(NamedTuple):
    """One node in one run. lost: why nothing is known of it."""

    node: str
    verdict: str
    findings: tuple[Finding, ...]
    run: str = ""
    environment: str = ""
    profile: str = ""
    boot_id: str = ""
    at: str = ""
    ms: int = 0


def lines(result: Result, *, uptime_s: int | None = None) -> str:
    """JSON lines, the canonical form: a row for each finding, each complete in itself.

    uptime_s: of the node when they were written, where they stay there: age is counted in it.
    """
    head: dict[str, Any] = {
        "schema": 1, "run": result.run, "node": result.node, "environment": result.environment,
        "profile": result.profile, "boot_id": result.boot_id, "at": result.at, "node_verdict": result.verdict,
        "node_ms": result.ms,
    }  # fmt: skip
    if uptime_s is not None:
        head["uptime_s"] = uptime_s
    return "".join(
        json.dumps({**head, **finding._asdict()}, sort_keys=True, separators=(",", ":")) + "\n"
        for finding in by_severity(result.findings)
    )


def rows(results: Iterable[Result], *, everything: bool = False) -> list[tuple[str, str, str, str, str, str]]:
    """Verdict, node, check, part, what, action: worst first; what follows from another finding is left out."""
    told = [
        (finding, result.node)
        for result in results
        for finding in result.findings
        if everything or (finding.verdict not in (PASS, SKIP) and not finding.because)
    ]
    told.sort(key=lambda pair: (-SEVERITY[pair[0].verdict], order(pair[0].check), pair[1]))
    return [(f.verdict, node, f.check, f.entity, f.message, f.action) for f, node in told]


def text(result: Result, *, everything: bool = False) -> str:
    """For a person at the node."""
    told = rows([result], everything=everything)
    counts = {word: sum(f.verdict == word for f in result.findings) for word in SEVERITY}
    out = [f"{verdict:5}  {check}{f' {part}' if part else ''}: {what}{f'  [{action}]' if action else ''}\n"
           for verdict, _, check, part, what, action in told]  # fmt: skip
    out += [f"       -> {remedy}\n" for remedy in dict.fromkeys(f.remedy for f in result.findings if f.remedy)]
    said = ", ".join(f"{count} {word}" for word, count in counts.items() if count)
    return "".join([*out, f"{result.node or 'this node'}: {result.verdict} ({said})\n"])


def culprit(findings: Sequence[Finding]) -> Finding | None:
    """The finding to name where there is room for one: the worst that follows from no other."""
    wrong = [finding for finding in by_severity(findings) if finding.verdict in (FAIL, ERROR, WARN)]
    return next((finding for finding in wrong if not finding.because), wrong[0] if wrong else None)


def reason(result: Result) -> str:
    """Slurm's reason of a drain: `HC:gpu.remap_pending:gpu3 0123456789ab`, the check's id first."""
    worst = culprit(result.findings)
    if worst is None:
        return ""
    tail = f" {result.run[:RUN_LENGTH]}" if result.run else ""
    head = f"{PREFIX}{worst.check}" + (f":{worst.entity}" if worst.entity else "")
    head = re.sub(r"[^A-Za-z0-9:._/-]", "_", head)  # of Slurm's own syntax nothing: quotes, blanks, equal signs
    return head[: REASON_LENGTH - len(tail)] + tail


def junit(results: Iterable[Result]) -> str:
    """A suite for each node, a case for each check; ERROR is an error, not a failure."""
    suites = []
    for result in results:
        cases = []
        by_check: dict[str, list[Finding]] = {}
        for finding in by_severity(result.findings):
            by_check.setdefault(finding.check, []).append(finding)
        for check, findings in sorted(by_check.items()):
            told = "; ".join(f"{f.entity + ': ' if f.entity else ''}{f.message}" for f in findings)
            tag = {FAIL: "failure", ERROR: "error", SKIP: "skipped"}.get(findings[0].verdict)
            inner = f'<{tag} message="{_escaped(told)}"/>' if tag else f"<system-out>{_escaped(told)}</system-out>"
            cases.append(f'  <testcase classname="{_escaped(result.node)}" name="{_escaped(check)}">{inner}</testcase>')
        counted = [findings[0].verdict for findings in by_check.values()]
        suites.append(
            f' <testsuite name="{_escaped(result.node)}" tests="{len(counted)}" failures="{counted.count(FAIL)}"'
            f' errors="{counted.count(ERROR)}" skipped="{counted.count(SKIP)}" time="{result.ms / 1000:.3f}">\n'
            + "\n".join(cases) + "\n </testsuite>"
        )  # fmt: skip
    return '<?xml version="1.0" encoding="UTF-8"?>\n<testsuites>\n' + "\n".join([*suites, "</testsuites>"]) + "\n"


STATUS = {PASS: 0, WARN: 1, ERROR: 2, FAIL: 3}  # SKIP has no sample: nothing was measured


def prometheus(results: Sequence[Result], now_s: int) -> str:
    """A textfile of node_exporter: the worst verdict of each check; alert on an old timestamp as well."""
    status, value = [], []
    for result in results:
        worst: dict[str, int] = {}
        for finding in result.findings:
            if finding.verdict in STATUS:
                worst[finding.check] = max(worst.get(finding.check, 0), STATUS[finding.verdict])
            if re.fullmatch(r"-?[0-9]+(\.[0-9]+)?", finding.value):
                labels = (
                    f'node="{_label(result.node)}",check="{_label(finding.check)}",entity="{_label(finding.entity)}"'
                )
                value.append(f"bedplate_health_value{{{labels}}} {finding.value}\n")
        status += [
            f'bedplate_health_status{{node="{_label(result.node)}",check="{_label(check)}"}} {code}\n'
            for check, code in sorted(worst.items())
        ]
    ran = [f'bedplate_health_run_timestamp_seconds{{node="{_label(result.node)}"}} {now_s}\n' for result in results]
    parts = (
        ("bedplate_health_status", "0 PASS, 1 WARN, 2 ERROR, 3 FAIL", status),
        ("bedplate_health_value", "What was measured, where it is a number", sorted(set(value))),
        ("bedplate_health_run_timestamp_seconds", "When the verdict was reached", ran),
    )
    return "".join(f"# HELP {name} {what}\n# TYPE {name} gauge\n{''.join(rows)}" for name, what, rows in parts if rows)


def verdict_file(result: Result, uptime_s: int) -> str:
    """What HealthCheckProgram and prolog read. Age is counted in uptime: the clock may be what is wrong."""
    worst = culprit(result.findings)
    what = f"{worst.check} {worst.entity} {worst.message}" if worst else ""
    clean = "".join(letter if " " <= letter <= "~" else "?" for letter in " ".join(what.split()))[:200]
    said = {
        "boot_id": result.boot_id, "uptime_s": str(uptime_s), "verdict": result.verdict, "run": result.run,
        "reason": reason(result), "what": clean, "end": "bedplate-health-1",
    }  # fmt: skip
    return "".join(f"{key}={value}\n" for key, value in said.items())


def summary(result: Result) -> dict[str, Any]:
    """What a ledger keeps: the findings that are no PASS, in few words."""
    wrong = [f for f in by_severity(result.findings) if f.verdict not in (PASS, SKIP) and not f.because]
    return {
        "verdict": result.verdict, "boot_id": result.boot_id, "profile": result.profile, "ms": result.ms,
        "counts": {word: sum(f.verdict == word for f in result.findings) for word in SEVERITY},
        "findings": [
            {key: member for key, member in f._asdict().items() if member and key not in ("remedy", "because")}
            for f in wrong[:20]
        ],
    }  # fmt: skip


def _escaped(text: str) -> str:
    # Compiled here and not above: it takes a tenth of the agent's start, and the agent on a node writes no XML.
    clean = re.sub("[^\t\n\r\x20-\ud7ff\ue000-\ufffd]", "?", text)
    for letter, entity in (("&", "&amp;"), ("<", "&lt;"), (">", "&gt;"), ('"', "&quot;"), ("\n", "&#10;")):
        clean = clean.replace(letter, entity)
    return clean


def _label(text: str) -> str:
    clean = "".join(letter if letter.isprintable() else "?" for letter in text)
    return clean.replace("\\", "\\\\").replace('"', '\\"')
