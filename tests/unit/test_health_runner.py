"""The runner: deadlines that hold, groups that end, drivers that are asked once, one run at a time."""

import fcntl
import json
import os
import signal
import subprocess
import sys
import time
from contextlib import suppress
from pathlib import Path

import pytest

from bedplate.act.healthmark import SCRIPT
from bedplate.observe.agentfile import agent, agent_sha256
from bedplate.observe.health import COMMAND, message
from bedplate_agent import readers, recording, runner
from bedplate_agent.command import HISTORY_LOOKS, dealt_with, look, may_load, remember
from bedplate_agent.judging import chosen
from bedplate_agent.parse import parser
from bedplate_agent.parse.host import parse_history
from bedplate_agent.probe import ABSENT, ACTIVE, DONE, DRIVER, LATE, LOG, SERVICES, SHORT, SYSFS, UNASKED, Probe, Raw
from bedplate_agent.profile import Profile
from bedplate_agent.runner import run
from bedplate_agent.verdict import ERROR
from unit.health.replays import replay
from unit.health.standins import program

pytestmark = pytest.mark.slow  # every test starts programs

SH = "/bin/sh"


def sh(name: str, script: str, *, stage: str = SERVICES, deadline_s: float = 60) -> Probe:
    return Probe(name, stage, deadline_s, (SH, "-c", script))


def running(mark: str) -> list[str]:
    """Processes whose command line has this word, zombies left out."""
    found = []
    for path in Path("/proc").glob("[0-9]*/cmdline"):
        with suppress(OSError):
            if mark in path.read_text():
                found.append(path.parent.name)
    return found


def test_what_a_program_says_is_kept_with_its_exit_code() -> None:
    raws = run([sh("good", "echo out; echo err >&2"), sh("bad", "echo no; exit 3")])
    assert (raws["good"].state, raws["good"].out, raws["good"].err, raws["good"].code) == (DONE, "out\n", "err\n", 0)
    assert (raws["bad"].state, raws["bad"].code) == (DONE, 3)


def test_a_program_runs_in_the_c_locale_with_nothing_else_of_our_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LC_ALL", "de_DE.UTF-8")
    monkeypatch.setenv("SECRET", "x")
    said = dict(line.split("=", 1) for line in run([Probe("env", SERVICES, 60, ("env",))])["env"].out.splitlines())
    assert said["LC_ALL"] == "C"
    assert not {"SECRET", "LANG"} & said.keys()


def test_a_program_that_does_not_end_is_ended_with_all_that_it_started(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(runner, "TERM_S", 0.3)
    script = "trap '' TERM; sh -c 'trap \"\" TERM; sleep 987654' & sleep 987654"
    raw = run([sh("hangs", f"echo before; {script}", deadline_s=0.5)])["hangs"]
    assert raw.state == LATE
    assert raw.out == "before\n"
    end = time.monotonic() + 60
    while running("987654") and time.monotonic() < end:
        time.sleep(0.05)
    assert running("987654") == []


def test_a_program_that_is_not_there_is_absent_and_a_shell_is_not_asked() -> None:
    raws = run(
        [Probe("none", SERVICES, 60, ("no-such-program; echo hello",)), Probe("not", SERVICES, 60, (SH, "/none"))]
    )
    assert raws["none"].state == ABSENT
    assert raws["not"].state == DONE
    assert raws["not"].code


def test_stages_come_in_their_order_whatever_the_list_says(tmp_path: Path) -> None:
    log = tmp_path / "log"
    probes = [sh(stage, f"echo {stage} >> {log}", stage=stage) for stage in (DRIVER, SERVICES, SYSFS, LOG)]
    run(probes)
    assert log.read_text().split() == [LOG, SYSFS, SERVICES, DRIVER]


def test_a_driver_that_does_not_answer_is_not_asked_again() -> None:
    raws = run([
        sh("other", "echo still", stage=SYSFS), sh("smi", "sleep 9876", stage=DRIVER, deadline_s=0.3),
        sh("nvlink_status", "echo asked", stage=DRIVER),
    ])  # fmt: skip
    assert raws["other"].out == "still\n"
    assert raws["smi"].state == LATE
    assert raws["nvlink_status"].state == UNASKED
    assert "got no answer" in raws["nvlink_status"].why


def test_what_is_left_when_the_time_is_up_says_so() -> None:
    raws = run([sh("first", "sleep 0.6", stage=LOG), sh("second", "echo no", stage=SYSFS)], deadline_s=0.4)
    assert raws["second"].state == UNASKED
    assert "time of the run" in raws["second"].why


def test_a_deadline_stands_still_while_there_is_no_processor(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(runner, "_without_processor_s", lambda _: 600.0)
    slow = sh("smi", "sleep 0.6; echo here", stage=DRIVER, deadline_s=0.2)
    assert run([slow], deadline_s=60)["smi"].out == "here\n"
    raws = run(
        [sh("smi", "sleep 987652", stage=DRIVER, deadline_s=0.2), sh("next", "echo", stage=DRIVER)], deadline_s=1
    )
    assert raws["smi"].state == SHORT, "nobody knows whether the driver answers"
    assert raws["smi"].why == "it had 0.0 of its 0.2 s when the time of the run was up (600.0 s without a processor)"
    assert "time of the run" in raws["next"].why
    assert not running("987652")


def test_a_probe_that_the_end_of_the_run_cuts_short_is_no_late_one() -> None:
    assert run([sh("smi", "sleep 987653", stage=DRIVER, deadline_s=600)], deadline_s=0.3)["smi"].state == SHORT


def test_the_kernel_says_how_long_a_group_waited_for_a_processor() -> None:
    # Two of one group and one processor for both: each waits while the other works.
    spin = "while time.process_time() < 0.5: pass"
    both = f"os.sched_setaffinity(0, sorted(os.sched_getaffinity(0))[:1])\nos.fork()\n{spin}\nos.write(1, b'.')"
    words = [sys.executable, "-c", f"import os, time\n{both}\ntime.sleep(600)"]
    with subprocess.Popen(words, stdout=subprocess.PIPE, start_new_session=True) as program_:
        assert program_.stdout
        program_.stdout.read(2)
        counted = int(Path(f"/proc/{program_.pid}/schedstat").read_text().split()[1])
        assert counted > 0
        assert runner._without_processor_s(program_.pid) >= counted / 1e9
        os.killpg(program_.pid, signal.SIGKILL)
    until = time.monotonic() + 60  # the other one is init's to bury
    while runner._without_processor_s(program_.pid) and time.monotonic() < until:
        time.sleep(0.05)
    assert runner._without_processor_s(program_.pid) == 0, "of those that are gone nothing"


def test_nothing_that_loads_the_node_runs_without_a_word_for_it() -> None:
    assert run([sh("burn", "echo hot", stage=ACTIVE)])["burn"].state == UNASKED
    assert run([sh("burn", "echo hot", stage=ACTIVE)], may_load=lambda _: "")["burn"].out == "hot\n"


USED = "<processes><process_info><pid>7</pid><process_name>python</process_name></process_info>"


@pytest.mark.parametrize(
    ("probe", "old", "new", "why"),
    [
        ("gres", '"IDLE"', '"ALLOCATED"', "ALLOCATED"),
        ("gres", '"DRAIN"', '"CLOUD"', "neither drained nor reserved"),
        ("gres", '"state"', '"states"', "is not known"),
        ("smi", "<processes>\n", USED, "a process uses a GPU: gpu0 7 python"),
        ("smi", "<attached_gpus>8", "<attached_gpus>7", "is not known"),
    ],
)
def test_a_node_is_loaded_only_where_slurm_keeps_jobs_away_and_no_process_uses_a_gpu(
    probe: str, old: str, new: str, why: str
) -> None:
    record = replay("base-b200-580")
    profile = Profile(record.profile)
    assert may_load(record.raws, profile) == ""
    text = record.raws[probe].out
    assert old in text
    assert why in may_load({**record.raws, probe: Raw(DONE, text.replace(old, new), code=0)}, profile)


def test_a_run_waits_for_another_and_says_so_when_that_does_not_end(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("bedplate_agent.command.LOCK_WAIT_S", 0.3)
    lock = tmp_path / "lock"
    hold = f"import fcntl, time; f = open({str(lock)!r}, 'w'); fcntl.lockf(f, 2); print(1, flush=True); time.sleep(999)"
    with subprocess.Popen([sys.executable, "-c", hold], stdout=subprocess.PIPE) as holder:
        try:
            assert holder.stdout is not None
            holder.stdout.readline()
            result, raws = look(replay("base-b200-580").profile, ["passive"], "r", lock=str(lock))
        finally:
            holder.kill()
    assert result.verdict == ERROR
    assert {raw.state for raw in raws.values()} == {UNASKED}
    with lock.open("w") as file:
        fcntl.lockf(file, fcntl.LOCK_EX | fcntl.LOCK_NB)


def test_the_sites_own_checks_run_one_after_the_other_in_one_time(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(readers, "SITE_CHECKS", str(tmp_path))
    monkeypatch.setattr(readers, "SITE_S", 1.0)
    for name, text in (
        ("10-fine", "exit 0"), ("20-fans", "echo fan 3 stands still; echo more; exit 3"),
        ("30-hangs", "trap '' TERM; sleep 987653"), ("40-late", "exit 0"),
    ):  # fmt: skip
        program(tmp_path / name, f"#!/bin/sh\n{text}\n")
    (tmp_path / "README").write_text("no check")
    (tmp_path / "50-not-a-program").write_text("neither")
    (tmp_path / "50-not-a-program").chmod(0o755)
    raw = run([Probe("site", SERVICES, 60, reader="site", foreign=True)])["site"]
    found = parser("site")(raw.out)
    assert list(found) == ["10-fine", "20-fans", "30-hangs", "40-late", "50-not-a-program"]
    assert found["20-fans"] == (3, "fan 3 stands still")
    assert found["30-hangs"][0] is None
    assert found["50-not-a-program"][0] is None
    assert not running("987653")


def test_a_record_reads_back_as_it_was(tmp_path: Path) -> None:
    before = replay("base-h200-550")
    recording.save(str(tmp_path / "case"), before)
    assert recording.load(str(tmp_path / "case")) == before


@pytest.mark.parametrize("index", ["", "{}", '{"schema": 1}', '{"schema": 1, "probes": {"smi": {"out": "none"}}}'])
def test_a_damaged_record_is_none(tmp_path: Path, index: str) -> None:
    (tmp_path / "record.json").write_text(index)
    with pytest.raises(recording.BadRecord):
        recording.load(str(tmp_path))


@pytest.mark.parametrize(
    ("text", "settings"),
    [
        ("# NCCL_IB_HCA=mlx5\nNCCL_DEBUG=WARN\n NCCL_IB_HCA = mlx5_0\nNCCL_IB_HCA==mlx5_4\n\nnonsense\n",
         {"NCCL_DEBUG": "WARN", "NCCL_IB_HCA": "=mlx5_4"}),
        ("", {}),
        (None, {}),
    ],
)  # fmt: skip
def test_nccls_configuration_is_read_as_nccl_does(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, text: str | None, settings: dict[str, str]
) -> None:
    monkeypatch.setattr(readers, "NCCL_CONF", str(tmp_path / "nccl.conf"))
    if text is not None:
        (tmp_path / "nccl.conf").write_text(text)
    assert parser("nccl_conf")(readers.listing(readers.nccl_conf())) == settings


def test_counters_of_an_earlier_look_are_remembered_each_half_hour_of_one_boot(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(readers, "HISTORY", str(tmp_path / "history"))
    record = replay("base-b200-580")

    def look_at(uptime: str) -> list[str]:
        host = record.raws["host"].out.replace("86400.12", uptime)
        earlier = readers.listing(readers.history())
        raws = {**record.raws, "host": Raw(DONE, host, code=0), "history": Raw(DONE, earlier, code=0)}
        remember(str(tmp_path), raws, record.profile)
        return [line.split()[1] for line in (tmp_path / "history").read_text().splitlines()]

    assert look_at("100.0") == ["100.0"]
    assert look_at("400.0") == ["100.0"]
    assert look_at("2000.0") == ["100.0", "2000.0"]
    looks = parse_history(readers.listing(readers.history()))
    assert looks[0].counts["mlx5_0.link_downed"] == 0
    assert len(looks[0].counts) == 16
    (tmp_path / "history").write_text("another-boot 50.0 mlx5_0.link_downed=9\n")
    assert look_at("60.0") == ["60.0"]
    for number in range(100):
        kept = look_at(f"{5000 + 2000 * number}.0")
    assert len(kept) == HISTORY_LOOKS
    assert (tmp_path / "history").stat().st_size < readers.SMALL


# --- the file -------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("said", "since_us"),
    [
        ("{boot} 1795000000000000\n", 1795000000000000), ("another 1795000000000000\n", None), ("{boot}\n", None),
        ("", None), ("{boot} -1\n", None), ("{boot} soon\n", None), ("{boot} 5\n", 5),
    ],
)  # fmt: skip
def test_what_was_dealt_with_in_this_boot_is_left_out_and_nothing_else(
    tmp_path: Path, said: str, since_us: int | None
) -> None:
    boot = Path("/proc/sys/kernel/random/boot_id").read_text().strip()
    (tmp_path / "since").write_text(said.format(boot=boot))
    assert dealt_with(str(tmp_path), {"schema": 1}).get("since_us") == since_us
    assert dealt_with(str(tmp_path / "none"), {"schema": 1}) == {"schema": 1}


def test_what_the_controller_writes_is_what_the_timer_reads(tmp_path: Path) -> None:
    script = SCRIPT.format(since_us=1795000000000000).replace("/run/bedplate-health", str(tmp_path / "there"))
    subprocess.run(["/bin/sh", "-c", script], check=True)
    assert dealt_with(str(tmp_path / "there"), {}) == {"since_us": 1795000000000000}


def test_the_agent_is_the_same_bytes_each_time_it_is_built() -> None:
    first, digest = agent(), agent_sha256()
    agent.cache_clear()
    assert agent() == first
    assert agent_sha256() == digest
    assert first.startswith(b"#!/usr/bin/env python3\nPK")


def pythons() -> list[str]:
    """Ours, and older ones that nodes have, where they are: what is compiled for ours is nothing to them."""
    old = sorted(Path("/root/.pyenv/versions").glob("3.10.*/bin/python3.10")) if os.access("/root", os.X_OK) else []
    others = [Path("/usr/bin/python3.10"), Path("/usr/bin/python3.11"), *old]
    return [sys.executable, *(str(path) for path in others if path.exists())]


@pytest.mark.parametrize("python", pythons())
def test_the_file_runs_alone_and_judges_as_the_checkout_does(tmp_path: Path, python: str) -> None:
    file = tmp_path / "agent.pyz"
    file.write_bytes(agent())
    folder = Path(__file__).with_name("health") / "cases" / "fault-21-remap-pending"
    words = [python, "-I", "-S", str(file), "run", "--replay", str(folder), "--class", "passive,slow,idle,active"]
    done = subprocess.run(words, capture_output=True, text=True, check=False, cwd=tmp_path)
    assert done.returncode == 1, done.stderr
    assert done.stdout.startswith("FAIL   gpu.remap_pending gpu3: a remapped row waits for a reset  [reset]\n")


@pytest.mark.parametrize("python", pythons())
def test_what_bedplate_health_sends_is_the_same_agent_for_each_python(tmp_path: Path, python: str) -> None:
    asked = {
        "profile": replay("base-b200-580").profile, "classes": ["slow"], "run": "r", "lock": str(tmp_path / "lock"),
        "path": str(tmp_path),
    }  # fmt: skip
    program(tmp_path / "ipmitool", "#!/bin/sh\nexit 1\n")
    command = COMMAND.replace("python3", python, 1)
    done = subprocess.run(["sh", "-c", command], input=message(asked), capture_output=True, check=False, cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    told = {finding["check"]: finding["verdict"] for finding in json.loads(done.stdout)["findings"]}
    assert told == {check.id: "ERROR" for check in chosen(["slow"])}


@pytest.mark.parametrize("words", [["walk"], ["run"], ["run", "--profile"], ["run", "--colour", "red"], []])
def test_wrong_use_is_told_apart_from_a_verdict(words: list[str]) -> None:
    done = subprocess.run([sys.executable, "-m", "bedplate_agent", *words], capture_output=True, text=True, check=False)
    assert done.returncode == 3
    assert done.stderr.startswith("bedplate health agent: ")


def test_a_run_on_this_machine_asks_everything_and_believes_nothing_that_is_not_there(tmp_path: Path) -> None:
    program(tmp_path / "nvidia-smi", "#!/bin/sh\necho 'NVIDIA-SMI has failed'; exit 9\n")
    result, raws = look(
        replay("base-b200-580").profile, ["passive"], "r", lock=str(tmp_path / "lock"), path=str(tmp_path)
    )
    assert result.verdict == "FAIL"
    assert {"journal", "pci", "host", "smi", "mount:/", "processes"} <= raws.keys()
    assert raws["host"].state == DONE
    assert raws["processes"].state == DONE
    named = [f for f in result.findings if f.check == "driver.responds"]
    assert [f.message for f in named] == ["nvidia-smi ended with 9: NVIDIA-SMI has failed"]
