"""Verification over an ssh that hangs, ends with 255 or is not there: a verdict for each node, and no false pass."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from bedplate.decide.verification import ERROR, PASS, UNREACHABLE, judge_all
from bedplate.observe.verify import read_report
from bedplate.sources import checkout
from unit.simulation import Simulation

pytestmark = pytest.mark.slow

SSH = """#!/bin/sh
for last; do :; done
case "$*" in
*10.77.0.14*) echo 'ssh: connect to host 10.77.0.14 port 22: No route to host' >&2; exit 255 ;;
esac
[ "$last" = true ] && exit 0
case "$*" in
*10.77.0.12*) echo hangs >> "$0.log"; exec sleep 60 ;;
*10.77.0.13*) exit 255 ;;
esac
exit 2
"""
# A minute for each check of a node that hangs is too long for a test.
QUICK = """
def pytest_configure():
    import bedplate.observe.nodeplugin as plugin
    plugin.DEADLINE_S = 3
"""


def test_a_node_that_hangs_is_given_up_and_one_whose_command_ends_with_255_is_not_known(tmp_path: Path) -> None:
    """testinfra has no time for a command, and takes a remote 255 for a failure of ssh (pytest-testinfra#449, #356)."""
    sim = Simulation(tmp_path)
    programs = tmp_path / "bin"
    programs.mkdir()
    (programs / "ssh").write_text(SSH)
    (programs / "ssh").chmod(0o755)
    (programs / "quick_deadline.py").write_text(QUICK)
    (sim.root / "known_hosts").touch()
    report = tmp_path / "rows"
    done = subprocess.run(
        [sys.executable, "-m", "pytest", "-p", "quick_deadline", "--quiet", "--no-header",
         checkout.root() / "tests/node", "--site", sim.root, "--env", "A", "--nodes", "n[2-4]", "--report", report],
        check=False, capture_output=True, text=True, timeout=120,
        env={**os.environ, "PATH": f"{programs}:{os.environ['PATH']}", "PYTHONPATH": str(programs)},
    )  # fmt: skip
    assert report.exists(), done.stdout + done.stderr
    rows, facts, whole = read_report(report.read_text())
    assert whole
    found = judge_all(dict.fromkeys(["n2", "n3", "n4"], "A"), rows, facts)
    assert (found["n2"].verdict, found["n2"].why) == (UNREACHABLE, "no answer within 3 s")
    assert len(found["n2"].rows) == 1
    # The two questions that checks share are asked before it is known that the node hangs; no check asks after that.
    assert len((programs / "ssh.log").read_text().splitlines()) <= 2
    assert (found["n4"].verdict, len(found["n4"].rows)) == (UNREACHABLE, 1)
    assert "No route to host" in found["n4"].why
    assert found["n3"].verdict == ERROR
    assert PASS not in [row.verdict for row in found["n3"].rows]
