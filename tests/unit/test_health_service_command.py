"""`bedplate health service` over real ssh: reports of timers, slurmctld's machine, a whole look, the ledger."""

import os
from collections.abc import Iterator
from pathlib import Path
from shlex import quote

import paramiko
import pytest
from click.testing import CliRunner, Result

from bedplate.act.slurm import Slurm
from bedplate.cli import health as command
from bedplate.decide.healthreport import COMMAND as REPORT
from bedplate.filelock import alone
from bedplate.ledger.connection import path_of
from bedplate.model.faults import Busy
from bedplate.observe.health import COMMAND
from bedplate_agent.judging import chosen
from bedplate_agent.sinks import Result as NodeResult
from bedplate_agent.sinks import lines
from bedplate_agent.verdict import FAIL, PASS, Finding
from unit.fleet_of_roots import NAMES, Fleet, fleet
from unit.health.standins import PROFILE, program, write_standins
from unit.sshd import run_with_sh

pytestmark = pytest.mark.slow  # every test starts programs

BOOT = "11111111-2222-3333-4444-555555555555"
# LAB STAND-IN: a file for each node with its state and reason, shown and set as slurmctld does.
SCONTROL = """\
#!/usr/bin/env python3
import json, pathlib, sys
nodes = pathlib.Path({folder!r})
words = sys.argv[1:]
def reason(name): return (nodes / name).read_text()
if words == ["show", "nodes", "--json"]:
    print(json.dumps({{"nodes": [{{"name": p.name, "reason": reason(p.name), "partitions": ["training"],
        "state": ["IDLE", "DRAIN"] if reason(p.name) else ["IDLE"]}} for p in sorted(nodes.iterdir())]}}))
elif words[:3] == ["--oneliner", "show", "node"]:
    said = reason(words[3])
    print(f"NodeName={{words[3]}} State=X" + (f" Reason={{said}} [root@2026-11-30T10:00:00]" if said else ""))
else:
    name = words[1].partition("=")[2]
    (nodes / name).write_text(words[3].partition("=")[2] if words[2] == "state=drain" else "")
"""


class Site:
    """The fleet of roots, with what timers wrote, and slurmctld behind n3."""

    def __init__(self, made: Fleet, root: Path) -> None:
        self.made, self.slurm = made, root / "slurm"
        self.slurm.mkdir()
        (root / "bin").mkdir()
        for name in NAMES:
            (self.slurm / name).touch()
            self.write(name, PASS, "0" * 12)
        program(root / "bin/scontrol", SCONTROL.format(folder=str(self.slurm)))
        answer = made.answer

        def answered(name: str, channel: paramiko.Channel, asked: str) -> None:
            if asked == REPORT:
                run_with_sh(channel, f"echo {BOOT}; echo 1000.0 1; cat {made.roots[name]}/results.jsonl")
            elif asked == "sh -s":
                run_with_sh(channel, f"PATH={quote(str(root / 'bin'))}:$PATH sh -s")
            else:
                answer(name, channel, asked)

        made.answer = answered  # type: ignore[method-assign,assignment]

    def write(self, name: str, verdict: str, run: str) -> None:
        checks = [check.id for check in chosen(["passive"])]
        findings = tuple(
            Finding(verdict if check == "gpu.remap_pending" else PASS, "as it is", check=check) for check in checks
        )
        result = NodeResult(name, verdict, findings, run, "A", "sha256:1", BOOT, "2026-11-30T10:00:00Z", 800)
        (self.made.roots[name] / "results.jsonl").write_text(lines(result, uptime_s=990))

    def reasons(self) -> dict[str, str]:
        return {path.name: path.read_text() for path in sorted(self.slurm.iterdir()) if path.read_text()}

    def round(self, *words: str) -> Result:
        return CliRunner().invoke(command.health, ["service", "--once", *words], obj=self.made.root)


@pytest.fixture
def site(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Site]:
    with fleet(tmp_path) as made:
        (made.root / "models" / "lab-gpu8.health.yml").write_text(PROFILE)
        for name in NAMES:
            there = write_standins(made.roots[name])
            own = f'{{"path": "{there}", "lock": "{made.roots[name] / "health.lock"}", "profile"'
            made.instead[name] = f"LC_ALL=C sed '$ s#{{\"profile\"#{own}#' | {COMMAND}"
        monkeypatch.setattr(command, "slurm_of", lambda site, _: Slurm(site, "n3"))
        yield Site(made, tmp_path)


def test_a_node_is_drained_stays_and_returns_by_real_commands(site: Site) -> None:
    assert site.round().exit_code == 0
    assert site.reasons() == {}
    site.write("n1", FAIL, "a" * 12)
    dry = site.round("--dry-run")
    assert "would drain n1: HC:gpu.remap_pending aaaaaaaaaaaa" in dry.stdout
    assert site.reasons() == {}
    done = site.round()
    assert "drained n1: HC:gpu.remap_pending aaaaaaaaaaaa (as it is)" in done.stdout, (done.output, done.exception)
    assert site.reasons() == {"n1": "HC:gpu.remap_pending aaaaaaaaaaaa"}
    assert site.round().exit_code == 0
    assert site.reasons() == {"n1": "HC:gpu.remap_pending aaaaaaaaaaaa"}
    site.write("n1", PASS, "b" * 12)
    (site.slurm / "n2").write_text("rma 4711: fan")
    # The timer finds it well. A whole look asks more, which these stand-ins do not know: not returned.
    stays = site.round()
    assert "n1 stays drained: its timer finds it well, a whole look ERROR: fabric.p2p" in stays.stdout, stays.output
    assert site.reasons() == {"n1": "HC:gpu.remap_pending aaaaaaaaaaaa", "n2": "rma 4711: fan"}
    skipped = "skip:\n  fabric.p2p: a stand-in does not know it\n  gpu.attendance: a stand-in has no Slurm\n"
    (site.made.root / "models" / "lab-gpu8.health.yml").write_text(PROFILE.replace("skip:\n", skipped))
    site.write("n1", PASS, "c" * 12)
    back = site.round()
    assert "returned n1, which was drained for HC:gpu.remap_pending aaaaaaaaaaaa" in back.stdout, back.output
    assert site.reasons() == {"n2": "rma 4711: fan"}
    told = [event.kind for event in site.made.events() if event.kind.startswith("health.")]
    assert told == ["health.changed", "health.drained", "health.changed", "health.returned"]


def test_three_silent_nodes_are_told_to_a_program_of_the_site_and_keep_their_jobs(site: Site, tmp_path: Path) -> None:
    for name in NAMES:
        (site.made.roots[name] / "results.jsonl").write_text("")
    program(tmp_path / "notify", f"#!/bin/sh\ncat > {tmp_path}/told\n")
    done = site.round("--notify", str(tmp_path / "notify"))
    assert done.exit_code == 0
    assert "nothing is known of n[1-3]" in (tmp_path / "told").read_text()
    assert site.reasons() == {}


def test_a_slurm_without_an_answer_ends_a_round_with_a_word_and_no_drain(site: Site, tmp_path: Path) -> None:
    site.write("n1", FAIL, "a" * 12)
    program(tmp_path / "bin/scontrol", "#!/bin/sh\necho Unable to contact slurm controller >&2\nexit 1\n")
    done = site.round()
    assert done.exit_code == 1
    assert "slurmctld on n3" in str(done.exception)
    assert site.reasons() == {}


def test_one_service_for_a_ledger(site: Site) -> None:
    with alone(path_of(site.made.site.ledger_url).with_suffix(".health-service.lock"), "the first"):
        done = site.round()
    assert isinstance(done.exception, Busy)
    assert f"another health service runs beside this ledger: process {os.getpid()} holds" in str(done.exception)
