"""The acceptance of a machine, all five questions: eight processes on a CPU, labelled as the stand-in that they are."""

import hashlib
import json
import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import yaml
from conftest import PATIENCE_S, ROOT, environment

from bedplate_train.accept import machine, questions, resume
from bedplate_train.accept.profile import Exchange, open_profile
from bedplate_train.faults import FAILED, FINISHED, Refused
from bedplate_train.text import canonical

CPU = ROOT / "profiles" / "cpu.yml"


def profile(folder: Path, data: Path, **changes: Any) -> Path:
    given = yaml.safe_load(CPU.read_text())
    given["paths"] = {"data": str(data), "run": str(folder / "run"), "data_is_read_only": False}
    for name, value in changes.items():
        given[name] |= value
    path = folder / "profile.yml"
    path.write_text(yaml.safe_dump(given))
    return path


def read_only(data: Path, words: list[str]) -> list[str]:
    """The command in a mount namespace of its own, in which the data cannot be written."""
    script = f'mount --bind "{data}" "{data}" && mount -o remount,bind,ro "{data}" && exec "$@"'
    return ["unshare", "--mount", "sh", "-c", script, "sh", *words]


@pytest.mark.ranks
def test_eight_processes_answer_every_question_and_100_steps_are_50_and_a_new_process_and_50(
    tmp_path: Path, data: Path
) -> None:
    mounts = os.geteuid() == 0 and shutil.which("unshare") is not None
    if mounts:
        mounts = subprocess.run(read_only(data, ["true"]), check=False, capture_output=True).returncode == 0
    given = profile(tmp_path, data, paths={"data_is_read_only": mounts})
    record = tmp_path / "record.json"
    words = [sys.executable, "-m", "bedplate_train", "accept", str(given), "--record", str(record)]
    done = subprocess.run(
        read_only(data, words) if mounts else words,
        env=environment(), capture_output=True, text=True, check=False, timeout=6 * PATIENCE_S,
    )  # fmt: skip
    assert done.returncode == FINISHED, done.stderr[-3000:]
    raw = record.read_bytes()
    found = json.loads(raw)
    assert raw == canonical(found) + b"\n"
    assert found["verdict"] == "passed"
    assert found["stand_in"] is True
    assert "NCCL" in found["not_proven"]
    assert found["profile"]["sha256"] == open_profile(given).identity
    assert list(found["questions"]) == sorted(questions.QUESTIONS)
    assert {q["verdict"] for q in found["questions"].values()} == {"passed"}
    assert found["questions"]["devices"]["said"].startswith("stand-in")
    for path, digest in found["logs"].items():
        assert hashlib.sha256(Path(path).read_bytes()).hexdigest() == digest

    assert found["questions"]["compute"]["not_answered"] == ["fused operators"]
    exchange = {c["check"]: c for c in found["questions"]["exchange"]["checks"]}
    assert {v for r in exchange["sums in several types"]["ranks"] for v in r["found"].values()} == {36.0}

    resumed = {c["check"]: c for c in found["questions"]["resume"]["checks"]}
    assert resumed["restored = saved"]["parts"] == {}
    end = resumed["resumed to the end = not interrupted"]
    assert (end["parts"], end["ranks"]) == ({}, 8)
    assert end["values"] > 400
    assert len(resumed["losses after the resume"]["losses"]) == 100
    losses = resumed["losses after the resume"]["losses"]
    assert losses["100"] < losses["1"] - 1, "it learned nothing"

    learning = found["questions"]["learning"]["checks"]
    controls = [c for c in learning if c.get("must_miss")]
    assert len(controls) == 7
    names = [c["check"] for c in learning]
    for name in ("fp32 data", "fp32 tensor", "fp32 pipeline", "fp32 combined", "fp32 overlap both", "bf16 combined"):
        assert name in names


def test_a_failed_question_stops_the_rest_and_says_what_to_look_at(tmp_path: Path, data: Path) -> None:
    """A GPU profile on a machine without: the first question fails, nothing is started."""
    given = profile(tmp_path, data, devices={"kind": "gpu"})
    record = tmp_path / "record.json"
    words = [sys.executable, "-m", "bedplate_train", "accept", str(given), "--record", str(record)]
    done = subprocess.run(words, env=environment(), capture_output=True, text=True, check=False, timeout=PATIENCE_S)
    assert done.returncode == FAILED, done.stderr
    found = json.loads(record.read_bytes())
    assert found["verdict"] == "failed"
    assert found["questions"]["devices"]["verdict"] == "failed"
    assert "look_at" in found["questions"]["devices"]
    assert {found["questions"][q]["verdict"] for q in questions.QUESTIONS[1:]} == {"not asked"}


def test_some_questions_are_asked_alone_and_the_record_says_which(tmp_path: Path, data: Path) -> None:
    record = tmp_path / "record.json"
    assert questions.accept(profile(tmp_path, data), record, chosen=("devices",)) == FINISHED
    found = json.loads(record.read_bytes())
    assert (found["asked"], found["verdict"]) == (["devices"], "passed")
    assert {name: each["verdict"] for name, each in found["questions"].items()} == {
        "devices": "passed", **dict.fromkeys(questions.QUESTIONS[1:], "not asked"),
    }  # fmt: skip
    for chosen in ((), ("devices", "bandwidth")):
        with pytest.raises(Refused, match="among devices, compute, exchange, resume, learning"):
            questions.accept(profile(tmp_path, data), record, chosen=chosen)


def test_numbers_that_are_none_are_written_as_text() -> None:
    """A machine whose loss is NaN fails with a record that says so, not without one."""
    found = questions.finite({"loss": float("nan"), "ranks": [{"error": float("inf")}, 1.5, 3, True, "x", None]})
    assert canonical(found) == b'{"loss":"nan","ranks":[{"error":"inf"},1.5,3,true,"x",null]}'


def test_data_that_was_changed_is_refused_before_the_first_question(tmp_path: Path, data: Path) -> None:
    copy = Path(shutil.copytree(data, tmp_path / "copy"))
    raw = bytearray((copy / "counting.bin").read_bytes())
    raw[0] ^= 1
    (copy / "counting.bin").write_bytes(raw)
    with pytest.raises(Refused, match=r"counting.bin: sha256"):
        questions.opened(open_profile(profile(tmp_path, copy)), None)


def test_a_tolerance_that_is_changed_is_another_profile(tmp_path: Path, data: Path) -> None:
    usual = open_profile(profile(tmp_path, data)).identity
    assert open_profile(profile(tmp_path, data, learning={"fp32": 1.0})).identity != usual


def test_faults_of_a_profile_are_told_with_their_lines(tmp_path: Path) -> None:
    path = tmp_path / "p.yml"
    path.write_text(CPU.read_text().replace("count: 8", "count: 7").replace("fp32: 2.0e-4", "fp32: -1.0"))
    with pytest.raises(Refused) as refused:
        open_profile(path)
    said = str(refused.value)
    assert "devices.count" in said
    assert "learning.fp32" in said


def test_a_place_that_takes_a_file_is_no_read_only_mount(tmp_path: Path) -> None:
    assert not resume.written(tmp_path)["passed"]
    assert resume.written(Path("/proc"))["passed"]
    assert not resume.written(tmp_path / "not there")["passed"]


def speeds(*pairs: tuple[int, float], right: bool = True) -> list[dict[str, Any]]:
    return [{"bytes": size, "bus_gb_per_s": speed, "right": right} for size, speed in pairs]


@pytest.mark.parametrize(
    ("found", "reference", "said"),
    [
        (speeds((10, 50.0), (100, 400.0)), None, []),
        (speeds((10, 50.0), (100, 90.0)), None, ["the floor is 100"]),
        (speeds((10, 50.0), (100, 400.0)), speeds((10, 60.0), (100, 400.0)), ["the reference machine has 60"]),
        (speeds((10, 55.0), (100, 400.0)), speeds((10, 60.0), (100, 440.0)), []),
        (speeds((100, 400.0), right=False), None, ["wrong sum"]),
        ([], None, ["no size was measured"]),
    ],
)
def test_what_is_too_slow_or_wrong_is_told(
    found: list[dict[str, Any]], reference: list[dict[str, Any]] | None, said: list[str]
) -> None:
    given = Exchange(sizes=(10, 100), floor_gb_per_s=100.0, of_reference=0.9)
    told = machine.fast_enough(found, given, reference)
    assert len(told) == len(said)
    assert all(part in text for part, text in zip(said, told, strict=True))


def test_only_the_record_of_a_machine_that_passed_is_a_reference(tmp_path: Path) -> None:
    path = tmp_path / "r.json"
    path.write_text('{"verdict": "failed"}')
    with pytest.raises(Refused, match="did not pass"):
        questions.reference_sizes(path, "larger sums")
    path.write_text('{"verdict": "passed"}')
    with pytest.raises(Refused, match="no record of an acceptance"):
        questions.reference_sizes(path, "larger sums")
    checks = [{"check": "larger sums", "ranks": [{"sizes": speeds((1, 2.0))}]}]
    path.write_text(json.dumps({"verdict": "passed", "questions": {"exchange": {"checks": checks}}}))
    assert questions.reference_sizes(path, "larger sums") == speeds((1, 2.0))
    assert questions.reference_sizes(path, "nccl-tests") == questions.reference_sizes(None, "larger sums") == []
