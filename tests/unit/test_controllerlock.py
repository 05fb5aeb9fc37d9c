"""One rollout at a time: who is refused, by whom, and when the lock is free again."""

import os
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from bedplate.act import controllerlock
from bedplate.act.controllerlock import acquire, claim, describe, elsewhere, holder, place, release
from bedplate.decide.fold import RolloutState, World
from bedplate.ledger import projection
from bedplate.model.faults import Busy
from bedplate.sources.site import open_site
from unit.site_sample import replace_in, write_site

ABOUT = {"rollout": 7, "environment": "2026.11-b", "actor": "maria@ctl", "since": "2026-11-02T09:14:03+00:00"}
# A controller that takes the lock, says who it is, starts a worker by fork and a program by exec, and waits.
CONTROLLER = """
import os, subprocess, sys, time
from pathlib import Path
from bedplate.act import controllerlock
handle = controllerlock.acquire(Path(sys.argv[1]))
controllerlock.describe(handle, {about})
program = subprocess.Popen(["sleep", "60"], close_fds=False, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL)
worker = os.fork()
if worker == 0:
    time.sleep(60)
    os._exit(0)
print(worker, program.pid, flush=True)
time.sleep(60)
"""


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "rollout.lock"


@pytest.fixture
def controller(path: Path) -> Iterator[tuple["subprocess.Popen[str]", int]]:
    """A running controller and the pid of its worker."""
    process = subprocess.Popen(
        [sys.executable, "-c", CONTROLLER.replace("{about}", repr(ABOUT)), path], stdout=subprocess.PIPE, text=True
    )
    assert process.stdout
    worker, program = map(int, process.stdout.readline().split())
    yield process, worker
    process.stdout.close()
    for pid in (worker, program):
        _kill(pid)
    process.kill()
    process.wait()


def _kill(pid: int) -> None:
    try:
        os.kill(pid, 9)
    except ProcessLookupError:
        return


@pytest.fixture(autouse=True)
def _quick(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(controllerlock, "LOOK_S", 0.05)


def test_a_lock_that_nobody_holds_is_free_and_looking_leaves_no_trace(path: Path) -> None:
    assert holder(path) is None
    assert not path.exists()
    release(acquire(path))
    text = path.read_text()
    assert holder(path) is None
    assert path.read_text() == text


def test_a_second_process_is_refused_with_who_and_since(path: Path) -> None:
    handle = acquire(path)
    describe(handle, ABOUT)
    second = f"from pathlib import Path; from bedplate.act.controllerlock import *; acquire(Path({str(path)!r}))"
    done = subprocess.run([sys.executable, "-c", second], check=False, capture_output=True, text=True)
    said = done.stderr.splitlines()[-1]
    assert done.returncode == 1
    assert (
        "Busy: another rollout is running: rollout 7 to 2026.11-b by maria@ctl, since 2026-11-02T09:14:03+00:00" in said
    )
    assert f"(process {os.getpid()}): wait for its end" in said
    release(handle)


def test_looking_says_what_a_refusal_says_and_takes_nothing(
    path: Path, controller: tuple["subprocess.Popen[str]", int]
) -> None:
    text = path.read_text()
    with pytest.raises(Busy) as caught:
        acquire(path)
    assert holder(path) == str(caught.value)
    assert f"(process {controller[0].pid})" in str(caught.value)
    assert path.read_text() == text


def test_a_holder_that_has_not_said_yet_who_it_is_still_refuses(path: Path) -> None:
    handle = acquire(path)
    with pytest.raises(Busy, match=r"another rollout is running: rollout \? to \? by somebody, since just now"):
        acquire(path)
    release(handle)


def test_a_killed_controller_whose_workers_live_refuses_and_names_them(
    path: Path, controller: tuple["subprocess.Popen[str]", int]
) -> None:
    process, worker = controller
    process.kill()
    process.wait()
    with pytest.raises(Busy) as caught:
        acquire(path)
    assert f"its controller (process {process.pid}) is dead, but its workers [{worker}] may still be acting" in str(
        caught.value
    )
    os.kill(worker, 9)
    deadline = time.monotonic() + 10
    while holder(path) and time.monotonic() < deadline:
        time.sleep(0.01)
    handle = acquire(path)  # the program that it started by exec lives on, and does not hold it
    assert path.read_text() == "", "what the dead one had said is gone"
    release(handle)


def test_a_lock_is_had_while_others_look_at_it(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(controllerlock, "LOOK_S", 5)
    path.touch()
    looking = f"""
import fcntl, time
handle = open({str(path)!r})
fcntl.flock(handle, fcntl.LOCK_SH)
print(flush=True)
time.sleep(0.2)
"""
    looker = subprocess.Popen([sys.executable, "-c", looking], stdout=subprocess.PIPE)
    assert looker.stdout
    looker.stdout.readline()
    release(acquire(path))
    looker.stdout.close()
    looker.wait()


# --- two checkouts of a site, and two controllers --------------------------------------------------


@pytest.mark.parametrize("name", ["ledger.sqlite3", "fleet.sqlite3"])
def test_two_checkouts_of_a_site_that_share_a_ledger_share_the_lock(tmp_path: Path, name: str) -> None:
    """A rollout that the other checkout does not see would be abandoned there, and its nodes changed by both."""
    one, two = (write_site(tmp_path / where) for where in ("one", "two"))
    replace_in(two / "fleet.yml", "sqlite:///ledger.sqlite3", f"sqlite:///{one / name}")
    replace_in(one / "fleet.yml", "sqlite:///ledger.sqlite3", f"sqlite:///{name}")
    assert place(open_site(one)) == place(open_site(two))
    handle = acquire(place(open_site(one)))
    try:
        with pytest.raises(Busy, match="another rollout"):
            acquire(place(open_site(two)))
    finally:
        release(handle)
    other = write_site(tmp_path / "other")
    assert place(open_site(other)) == other / "rollout.lock", "where it always was"


class Shared:
    """The claims of two connections to one ledger of PostgreSQL."""

    def __init__(self, *, held: bool) -> None:
        self.held = held

    def claim(self, *, shared: bool = False) -> bool:
        if self.held:
            return False
        self.held = not shared
        return True


def test_a_rollout_of_another_controller_is_named_and_waited_for_by_a_person(monkeypatch: pytest.MonkeyPatch) -> None:
    record = RolloutState(7, "sha256:1", "B", "2026-11-02T09:14:03.000000Z", "maria@ctl2", {}, "7-1")
    monkeypatch.setattr(projection, "world", lambda _: World({}, {7: record}, {}, 3))
    monkeypatch.setattr(controllerlock, "LOOK_S", 0.1)
    there: Any = Shared(held=True)
    with pytest.raises(Busy, match="rollout 7 to B by maria@ctl2, since 2026-11-02T09:14:03Z, on another controller"):
        claim(there)
    free: Any = Shared(held=False)
    assert elsewhere(free) is None
    claim(free)
    assert free.held
