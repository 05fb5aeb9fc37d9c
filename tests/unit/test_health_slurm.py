"""What slurmctld is asked, run by a real shell against a scontrol that behaves; and reports of timers."""

import json
import subprocess
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bedplate.decide.healthreport import FILE, report
from bedplate.decide.healthresult import NoResult
from bedplate.decide.slurmnodes import NoAnswer, drains, outcomes, resumes, shown
from bedplate_agent.sinks import Result, lines
from bedplate_agent.verdict import FAIL, PASS, Finding

# Keeps a file for each node with its state and reason, as slurmctld shows and takes them.
SCONTROL = """\
#!/bin/sh
cd {nodes}
case "$1 $2" in
"--oneliner show") [ -e "$4" ] || {{ echo "Node $4 not found" >&2; exit 1; }}; cat "$4" ;;
"update nodename="*)
  name=${{2#nodename=}}
  [ ! -e "$name.refuses" ] || {{ echo "slurm_update error: Access denied" >&2; exit 1; }}
  case $3 in
  state=drain) echo "NodeName=$name State=IDLE+DRAIN Reason=${{4#reason=}} [root@2026-11-30T10:00:00]" > "$name" ;;
  state=resume) echo "NodeName=$name State=IDLE" > "$name" ;;
  esac ;;
*) exit 2 ;;
esac
"""


class Controller:
    def __init__(self, root: Path) -> None:
        self.nodes, self.programs = root / "nodes", root / "bin"
        self.nodes.mkdir()
        self.programs.mkdir()
        (self.programs / "scontrol").write_text(SCONTROL.format(nodes=self.nodes))
        (self.programs / "scontrol").chmod(0o755)

    def node(self, name: str, reason: str = "") -> None:
        said = f" Reason={reason} [root@2026-11-30T09:00:00]" if reason else ""
        (self.nodes / name).write_text(f"NodeName={name} State={'IDLE+DRAIN' if reason else 'IDLE'}{said}\n")

    def run(self, script: str) -> str:
        done = subprocess.run(
            ["/bin/sh", "-s"], input=script, text=True, capture_output=True, check=True, timeout=60,
            env={"PATH": f"{self.programs}:/usr/bin:/bin"},
        )  # fmt: skip
        assert done.stderr == ""
        return done.stdout


@pytest.mark.slow
def test_nodes_are_drained_one_by_one_and_never_over_a_reason(tmp_path: Path) -> None:
    slurm = Controller(tmp_path)
    for name, reason in (("n1", ""), ("n2", "rma 4711: fan"), ("n4", "")):
        slurm.node(name, reason)
    (slurm.nodes / "n4.refuses").touch()
    asked = dict.fromkeys(("n1", "n2", "n3", "n4"), "HC:gpu.count:gpu3 0123456789ab")
    said = outcomes(slurm.run(drains(asked)), asked)
    assert said == {
        "n1": "", "n2": "somebody else's reason stands there by now", "n3": "Node n3 not found",
        "n4": "slurm_update error: Access denied",
    }  # fmt: skip
    assert "Reason=HC:gpu.count:gpu3 0123456789ab [" in (slurm.nodes / "n1").read_text()
    assert "Reason=rma 4711: fan [" in (slurm.nodes / "n2").read_text()


@pytest.mark.slow
def test_only_the_reason_that_was_seen_is_taken_away(tmp_path: Path) -> None:
    slurm = Controller(tmp_path)
    ours = "HC:gpu.count 0123456789ab"
    for name, reason in (("n1", ours), ("n2", f"{ours} and a note by Ann"), ("n3", "")):
        slurm.node(name, reason)
    asked = dict.fromkeys(("n1", "n2", "n3"), ours)
    assert [bool(why) for why in outcomes(slurm.run(resumes(asked)), asked).values()] == [False, True, True]
    assert "Reason" not in (slurm.nodes / "n1").read_text()
    assert "Ann" in (slurm.nodes / "n2").read_text()


def test_a_script_that_says_nothing_did_nothing() -> None:
    assert outcomes("", {"n1": "x"}) == {"n1": "Slurm said nothing"}
    with pytest.raises(ValueError, match="no name"):
        drains({"n1; reboot": "x"})


@pytest.mark.parametrize(
    "text", ["", "{}", '{"nodes": []}', '{"nodes": [{"name": "n1"}]}', "Unable to contact slurmctld"]
)
def test_an_answer_that_is_none_is_not_an_empty_cluster(text: str) -> None:
    with pytest.raises(NoAnswer):
        shown(text)


def test_flags_say_whether_a_node_gets_jobs_has_some_and_is_whole() -> None:
    text = json.dumps({"nodes": [
        {"name": "n1", "state": ["IDLE"], "reason": "", "partitions": ["training"]},
        {"name": "n2", "state": ["MIXED", "DRAIN"], "reason": "HC:gpu.count 1"},
        {"name": "n3", "state": ["DOWN", "NOT_RESPONDING"], "reason": "Not responding"},
    ]})  # fmt: skip
    found = shown(text)
    assert [(n.out, n.busy, n.whole) for n in found.values()] == [
        (False, False, True), (True, True, True), (True, False, False),
    ]  # fmt: skip


# --- what a timer wrote

BOOT = "11111111-2222-3333-4444-555555555555"
RESULT = Result(
    "n1", FAIL, (Finding(FAIL, "7 of 8", check="gpu.count"), Finding(PASS, "fine", check="host.time")),
    "0123456789ab", "A", "sha256:1", BOOT, "2026-11-30T10:00:00Z", 812,
)  # fmt: skip
ASKED = ("gpu.count", "host.time")


def answer(text: str, *, boot: str = BOOT, uptime: str = "1000.25 1900.00") -> bytes:
    return f"{boot}\n{uptime}\n{text}".encode()


WHOLE = answer(lines(RESULT, uptime_s=900))


def read(data: bytes, **words: Any) -> Any:
    return report(data, words.pop("node", "n1"), words.pop("asked", ASKED), oldest_s=words.pop("oldest_s", 900))


def test_a_report_is_the_result_and_its_age_in_uptime() -> None:
    age_s, result = read(WHOLE)
    assert (age_s, result.verdict, result.run, result.boot_id) == (100, FAIL, "0123456789ab", BOOT)
    assert {(f.check, f.verdict) for f in result.findings} == {("gpu.count", FAIL), ("host.time", PASS)}


@pytest.mark.parametrize(
    ("data", "why"),
    [
        (answer("", boot=BOOT), "is empty"),
        (answer(lines(RESULT, uptime_s=900), boot="another"), "earlier boot"),
        (answer(lines(RESULT, uptime_s=900), uptime="2000.0 1"), "1100 s old"),
        (answer(lines(RESULT, uptime_s=1900)), "from the future"),
        (answer(lines(RESULT)), "has no time"),
        (answer(lines(RESULT, uptime_s=900), uptime="?"), "uptime"),
        (answer(lines(RESULT._replace(run=""), uptime_s=900)), "which run"),
        (answer(lines(RESULT._replace(node="n2"), uptime_s=900)), "of node"),
        (answer(lines(RESULT, uptime_s=900) + lines(RESULT._replace(run="other"), uptime_s=905)), "several looks"),
        (answer("[]\n"), "damaged"),
        (b"cat: " + FILE.encode() + b": No such file or directory\n", "is empty"),
    ],
)  # fmt: skip
def test_a_report_that_is_old_foreign_or_damaged_is_none(data: bytes, why: str) -> None:
    with pytest.raises(NoResult, match=why):
        read(data)


def test_no_truncation_of_a_report_is_healthier_than_the_whole() -> None:
    for length in range(len(WHOLE)):
        try:
            found = read(WHOLE[:length])
        except NoResult:
            continue
        # Cut between two rows: what is missing is no verdict, and so is the node at best.
        assert found.result.verdict != PASS


@given(st.binary(max_size=300))
def test_garbage_is_no_report(data: bytes) -> None:
    with pytest.raises(NoResult):
        read(data)
