"""What Slurm runs on every node: the first check that fails drains the node, and nothing that hangs keeps it."""

import re
import subprocess
import time
from pathlib import Path

import pytest

from bedplate.decide.render import JINJA
from bedplate.sources import checkout

pytestmark = pytest.mark.slow  # every test starts programs

TEMPLATE = (checkout.root() / "roles/slurm_node/templates/healthcheck.sh.j2").read_text()
SLURM_ENDS_IT_AFTER_S = 60  # HealthCheckProgram, slurm.conf(5)
SCONTROL = """#!/bin/sh
echo "$*" >> {asked}
[ "$1" = update ] || {show}
"""
QUIET = "echo 'NodeName=n1 State=IDLE'"


class Node:
    """A node with checks, and a slurmctld that says one thing."""

    def __init__(self, root: Path) -> None:
        self.checks, self.programs, self.asked = root / "health.d", root / "bin", root / "asked"
        self.checks.mkdir()
        self.programs.mkdir()
        self.asked.touch()
        script = JINJA.from_string(TEMPLATE).render({"node": {"name": "n1"}, "values": {}})
        # Seconds of a unit test; the real ones are added up below.
        for name, seconds in (
            ("checks_s=25", "checks_s=2"),
            ("scontrol_s=10", "scontrol_s=1"),
            ("kill_s=2", "kill_s=1"),
        ):
            assert name in script
            script = script.replace(name, seconds)
        (root / "healthcheck.sh").write_text(script.replace("/etc/slurm/health.d", str(self.checks)))
        self.script = root / "healthcheck.sh"
        self.program("logger", "exit 0")
        self.slurm(QUIET)

    def program(self, name: str, text: str) -> None:
        self._write(self.programs / name, f"#!/bin/sh\n{text}\n")

    def check(self, name: str, text: str) -> None:
        self._write(self.checks / name, f"#!/bin/sh\n{text}\n")

    def slurm(self, show: str) -> None:
        self._write(self.programs / "scontrol", SCONTROL.format(asked=self.asked, show=show))

    def _write(self, path: Path, text: str) -> None:
        path.write_text(text)
        path.chmod(0o755)

    def run(self) -> tuple[int, list[str], float]:
        """Exit code, what scontrol was asked, seconds."""
        began = time.monotonic()
        done = subprocess.run(
            ["/bin/sh", self.script], check=False, env={"PATH": f"{self.programs}:/usr/bin:/bin"}, timeout=30
        )
        return done.returncode, self.asked.read_text().splitlines(), time.monotonic() - began


@pytest.fixture
def node(tmp_path: Path) -> Node:
    return Node(tmp_path)


SHOW = "--oneliner show node n1"


def test_the_first_check_that_fails_drains_the_node_with_what_it_said(node: Node) -> None:
    node.check("10-fine", "exit 0")
    node.check("20-gpus", "echo row remap; echo more; exit 1")
    node.check("30-never", f"touch {node.checks}/ran")
    assert node.run()[:2] == (1, [SHOW, "update nodename=n1 state=drain reason=health: 20-gpus: row remap"])
    assert not (node.checks / "ran").exists()


def test_healthy_nodes_and_files_that_are_no_checks_ask_slurm_nothing(node: Node) -> None:
    node.check("10-fine", "exit 0")
    (node.checks / "README").write_text("exit 1\n")
    assert node.run()[:2] == (0, [])


@pytest.mark.parametrize(
    "show",
    ["echo 'NodeName=n1 State=IDLE+DRAIN Reason=rma 4711 [root@2026-11-02]'", "exit 1", "exec sleep 30"],
    ids=["somebody's reason", "no slurmctld", "a slurmctld that hangs"],
)
def test_a_reason_that_is_somebodys_or_that_nobody_could_read_stays(node: Node, show: str) -> None:
    node.check("20-gpus", "echo row remap; exit 1")
    node.slurm(show)
    code, asked, _ = node.run()
    assert (code, asked) == (1, [SHOW])


@pytest.mark.parametrize("hangs", ["exec sleep 30", "trap '' TERM; while :; do sleep 1; done"], ids=["it", "for good"])
def test_a_check_that_hangs_is_ended_and_named(node: Node, hangs: str) -> None:
    node.check("20-storage", hangs)
    code, asked, _ = node.run()
    (_, update) = asked
    assert code == 1
    assert re.fullmatch(r"update nodename=n1 state=drain reason=health: 20-storage: no end after [12] s", update)


def test_checks_that_are_slow_have_one_time_together(node: Node) -> None:
    for name in ("10-a", "20-b", "30-c", "40-d"):
        node.check(name, "sleep 1.2")
    code, asked, seconds = node.run()
    assert code == 1
    assert "no end after" in asked[-1]
    assert seconds < 4 * 1.2 + 1


def test_where_the_node_looks_at_itself_the_verdict_is_read_and_slurm_is_not_asked() -> None:
    script = JINJA.from_string(TEMPLATE).render({"node": {"name": "n1"}, "values": {"health_interval_s": "300"}})
    assert "scontrol" not in script
    assert script.rstrip().endswith("exec /usr/local/libexec/bedplate-health-verdict healthcheck")


def test_all_that_may_hang_hangs_for_less_than_slurm_waits() -> None:
    checks, scontrol, kill = map(int, re.findall(r"\b(?:checks|scontrol|kill)_s=([0-9]+)", TEMPLATE))
    assert checks + kill + 2 * (scontrol + kill) <= SLURM_ENDS_IT_AFTER_S - 5
