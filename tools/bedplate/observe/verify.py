"""Runs the verification of nodes: pytest over tests/node in processes of its own, rows judged here."""

import json
import os
import sys
import tempfile
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from bedplate.decide.verification import ERROR, Row, Verification, judge_all
from bedplate.model.nodes import fold as fold_names
from bedplate.process import ProcessFailed, run
from bedplate.sources import checkout
from bedplate.sources.site import Site

NODES_PER_PROCESS = 8
DEADLINE_S = 600.0
NO_TESTS_LEFT = 1  # pytest: some tests failed; 0: all passed; anything else: it did not run


def verify(site: Site, asked: Mapping[str, str]) -> dict[str, Verification]:
    """Hold nodes against locks; asked: node name -> environment name. Every node asked for has a verdict."""
    jobs: list[dict[str, str]] = []
    for environment in sorted(set(asked.values())):
        names = [node for node, wanted in asked.items() if wanted == environment]
        jobs += [
            dict.fromkeys(names[i : i + NODES_PER_PROCESS], environment)
            for i in range(0, len(names), NODES_PER_PROCESS)
        ]
    result: dict[str, Verification] = {}
    with ThreadPoolExecutor(max_workers=2 * (os.cpu_count() or 1)) as pool:
        for part in pool.map(lambda job: _one_process(site, job), jobs):
            result |= part
    return {node: result[node] for node in asked}


def _one_process(site: Site, asked: Mapping[str, str]) -> dict[str, Verification]:
    environment = next(iter(asked.values()))
    with tempfile.TemporaryDirectory(prefix="bedplate-verify-") as folder:
        report = Path(folder) / "rows"
        argv: Sequence[str | Path] = [
            sys.executable, "-m", "pytest", checkout.root() / "tests" / "node", "--quiet", "--no-header",
            "--site", site.root, "--env", environment, "--nodes", fold_names(asked), "--report", report,
        ]  # fmt: skip
        # A person's PYTEST_ADDOPTS could leave checks out, and a verification with fewer checks is none.
        env = {key: value for key, value in os.environ.items() if not key.startswith("PYTEST_")}
        try:
            done = run(argv, check=False, timeout_s=DEADLINE_S, env=env)
            trouble = "" if done.code in (0, NO_TESTS_LEFT) else (done.err.strip() or done.out.strip())[-1000:]
        except ProcessFailed as fault:
            trouble = str(fault)
        rows, facts, whole = read_report(report.read_text() if report.exists() else "")
    return judge_all(asked, rows if whole else [], facts if whole else {}, trouble or "the report of pytest is cut")


def read_report(text: str) -> tuple[list[Row], dict[str, dict[str, str]], bool]:
    """Rows, facts by node, and whether the report is whole.

    The last line says how many checks each node was to have; a node with fewer results gets a row that says so.
    """
    rows: list[Row] = []
    facts: dict[str, dict[str, str]] = {}
    for line in text.splitlines():
        try:
            entry = json.loads(line)
        except ValueError:
            break
        if "end" in entry:
            return rows + _silent(rows, entry["end"]), facts, True
        if "facts" in entry:
            facts[entry["node"]] = entry["facts"]
        else:
            rows.append(Row(**entry))
    return rows, facts, False


def _silent(rows: Sequence[Row], checks: Mapping[str, int]) -> list[Row]:
    # A check that is asked for each layer is one for each.
    answered = {node: len({(row.check, row.layer) for row in rows if row.node == node}) for node in checks}
    return [
        Row(node, "every check", "os", ERROR, f"{answered[node]} of {wanted} checks gave a result")
        for node, wanted in checks.items()
        if answered[node] < wanted
    ]
