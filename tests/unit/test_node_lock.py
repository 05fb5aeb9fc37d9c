"""The node's own lock, as the module that Ansible runs on the node: a process of its own, with arguments as JSON."""

import fcntl
import json
import os
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest

from bedplate.sources import checkout

pytestmark = pytest.mark.slow  # every test starts programs

MODULE = checkout.root() / "playbooks" / "library" / "bedplate_node_lock.py"
OLD, NEW = "6-77aa01bc34de", "7-0c41f8a2b9d3"


def start(lock: Path, rollout: str = NEW, *, mark: str = "", **given: Any) -> "subprocess.Popen[str]":
    """The module as a task of a rollout runs it: with the rollout's mark in its environment."""
    process = subprocess.Popen(
        [sys.executable, MODULE], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True,
        env=os.environ | {"BEDPLATE_ROLLOUT": mark or rollout},
    )  # fmt: skip
    assert process.stdin
    process.stdin.write(json.dumps({"ANSIBLE_MODULE_ARGS": {"rollout": rollout, "path": str(lock), **given}}))
    process.stdin.close()
    process.stdin = None
    return process


def end(process: "subprocess.Popen[str]") -> dict[str, Any]:
    """What the module said."""
    out, _ = process.communicate(timeout=60)
    said: dict[str, Any] = json.loads(out)
    assert bool(said.get("failed")) == bool(process.returncode)
    return said


def call(lock: Path, rollout: str = NEW, *, mark: str = "", **given: Any) -> dict[str, Any]:
    return end(start(lock, rollout, mark=mark, **given))


def is_locked(lock: Path) -> bool:
    with lock.open() as handle:
        try:
            fcntl.flock(handle, fcntl.LOCK_SH | fcntl.LOCK_NB)
        except BlockingIOError:
            return True
    return False


def held(lock: Path) -> str | None:
    holder = json.loads(lock.read_text() or "{}").get("rollout")
    return None if holder is None else str(holder)


@pytest.fixture
def lock(tmp_path: Path) -> Path:
    return tmp_path / "run" / "lock"


@pytest.fixture
def taken(lock: Path) -> Path:
    """A lock that the old rollout holds."""
    lock.parent.mkdir()
    lock.write_text(json.dumps({"rollout": OLD, "since": "2026-11-02T09:14:03+00:00"}))
    return lock


@pytest.fixture
def stray() -> Any:
    """A command of the old rollout that still runs; ends at a line on its input."""
    process = subprocess.Popen(
        [sys.executable, "-c", "input()"], stdin=subprocess.PIPE, env=os.environ | {"BEDPLATE_ROLLOUT": OLD}
    )
    yield process
    process.kill()
    process.wait()
    assert process.stdin
    process.stdin.close()


def test_a_free_lock_is_taken_kept_and_released(lock: Path) -> None:
    assert call(lock)["changed"] is False
    before = lock.read_text()
    assert held(lock) == NEW
    assert call(lock)["changed"] is False
    assert lock.read_text() == before
    call(lock, OLD, state="released")
    assert held(lock) == NEW, "somebody else's release"
    call(lock, state="released")
    assert held(lock) is None


def test_the_lock_of_a_rollout_that_did_not_end_is_refused(taken: Path) -> None:
    said = call(taken, ended=["5-a"])
    assert said["failed"]
    assert f"being changed by rollout {OLD}, since 2026-11-02T09:14:03+00:00" in said["msg"]
    assert f"this is rollout {NEW}" in said["msg"]
    assert str(taken) in said["msg"]
    assert held(taken) == OLD


def test_the_lock_of_an_ended_rollout_without_processes_is_taken_over_at_once(taken: Path) -> None:
    said = call(taken, ended=["5-a", OLD], mark=OLD)  # its own process is nobody to wait for
    assert (said["took_over"], said["changed"]) == (OLD, False)
    assert said["waited_s"] < 10
    assert held(taken) == NEW


def test_a_take_over_waits_for_the_processes_of_the_ended_rollout(
    taken: Path, stray: "subprocess.Popen[bytes]"
) -> None:
    module = start(taken, ended=[OLD], wait_s=60)
    while not is_locked(taken):
        assert module.poll() is None
        time.sleep(0.02)
    time.sleep(0.3)
    assert module.poll() is None, "it did not wait"
    assert held(taken) == OLD
    stray.terminate()
    stray.wait()
    assert end(module)["took_over"] == OLD
    assert held(taken) == NEW


def test_a_take_over_that_waits_in_vain_names_the_processes(taken: Path, stray: "subprocess.Popen[bytes]") -> None:
    said = call(taken, ended=[OLD], wait_s=0)
    assert said["failed"]
    assert f"rollout {OLD} was killed, but its commands still run on this node: {stray.pid}: " in said["msg"]
    assert [p["pid"] for p in said["processes"]] == [stray.pid]
    assert held(taken) == OLD


def test_processes_of_other_rollouts_do_not_matter(taken: Path, stray: "subprocess.Popen[bytes]") -> None:
    taken.write_text(json.dumps({"rollout": f"{OLD}0"}))  # the stray's mark is the beginning of this one
    assert call(taken, ended=[f"{OLD}0"], wait_s=0)["took_over"] == f"{OLD}0"
    assert stray.poll() is None


@pytest.mark.parametrize("text", ['{"rollout": "6-77aa', "[]"])
def test_a_torn_lock_is_nobodys_to_take(taken: Path, text: str) -> None:
    taken.write_text(text)
    said = call(taken, ended=[OLD])
    assert said["failed"]
    assert f"remove {taken}" in said["msg"]
    assert taken.read_text() == text


def test_check_mode_writes_nothing(lock: Path) -> None:
    assert call(lock, _ansible_check_mode=True)["changed"] is False
    assert not lock.parent.exists()
    lock.parent.mkdir()
    text = json.dumps({"rollout": OLD, "since": "x"})
    lock.write_text(text)
    assert call(lock, _ansible_check_mode=True, ended=[OLD])["took_over"] == OLD
    call(lock, OLD, _ansible_check_mode=True, state="released")
    assert lock.read_text() == text


def test_two_controllers_cannot_both_find_it_free(lock: Path) -> None:
    modules = [start(lock, f"{number}-x") for number in range(3)]
    said = [end(module) for module in modules]
    assert [f"{number}-x" for number, answer in enumerate(said) if not answer.get("failed")] == [held(lock)]
