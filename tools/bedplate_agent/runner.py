"""Asks the probes: no shell, a process group each, output to files in memory, deadlines that hold.

- A child past its deadline gets SIGTERM for its group, then SIGKILL; one that is stuck in the kernel survives both and
  is abandoned: nobody waits for it (mej/nhc#134).
- A deadline is for what is asked, not for a node whose processors are all taken: while a child waits for one, its time
  stands still. One that did not get half of its time until the run is over is no fault of the driver or the mount.
- Stage after stage, in the order of probe.STAGES. A driver that does not answer once is not asked again in this run.
- When the time of the whole run is up, what is left is not asked, and says so.
"""

from __future__ import annotations

import os
import resource
import select
import signal
import sys
import time
from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress

from bedplate_agent import readers
from bedplate_agent.probe import (
    ABANDONED,
    ABSENT,
    ACTIVE,
    DONE,
    DRIVER,
    LATE,
    SHORT,
    STAGES,
    UNASKED,
    WIDTH,
    Probe,
    Raw,
)

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import NoReturn

PASSIVE_S = 20.0  # of a whole passive run
TERM_S = 2.0  # from SIGTERM to SIGKILL
KILL_S = 1.0  # from SIGKILL to giving up
POLL_S = 0.01
OUTPUT_BYTES = 64 * 1024 * 1024
PATH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin:/opt/slurm/bin"
CANNOT_START, READER_FAILED = 127, 70


class Child:
    """A probe that is being asked."""

    def __init__(self, probe: Probe, path: str, latest: float) -> None:
        self.probe = probe
        self.out, self.err = os.memfd_create("out"), os.memfd_create("err")
        self.began = time.monotonic()
        self.latest = latest  # when the run is over
        self.ends = min(self.began + probe.deadline_s, latest)
        self.state = self.why = ""  # of one that was ended
        self.sent = 0  # signals
        sys.stdout.flush()
        sys.stderr.flush()
        self.pid = os.fork()
        if self.pid == 0:
            self._become(path)
        try:
            self.ending = os.pidfd_open(self.pid)
        except OSError:  # before Linux 5.3, or in a sandbox
            self.ending = -1

    def _become(self, path: str) -> NoReturn:
        try:
            os.setsid()
            nothing = os.open(os.devnull, os.O_RDONLY)
            for source, target in ((nothing, 0), (self.out, 1), (self.err, 2)):
                os.dup2(source, target)
            os.closerange(3, 256)  # a child that is stuck for ever must not hold the ssh connection or a lock
            resource.setrlimit(resource.RLIMIT_FSIZE, (OUTPUT_BYTES, OUTPUT_BYTES))
            resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
            environment = {"PATH": path, "LC_ALL": "C", "LANGUAGE": "", "HOME": "/root", "TZ": "UTC"}
            if self.probe.argv:
                os.execvpe(self.probe.argv[0], self.probe.argv, environment)  # noqa: S606  argv, no shell
            os.environ.clear()
            os.environ.update(environment)
            data = readers.read(self.probe.reader, self.probe.arguments).encode("utf-8", "replace")
            while data:
                data = data[os.write(1, data) :]
            os._exit(0)
        except BaseException as fault:  # noqa: BLE001  a child never returns into its parent's code
            os.write(2, f"{type(fault).__name__}: {fault}\n".encode("utf-8", "replace"))
            os._exit(CANNOT_START if isinstance(fault, FileNotFoundError) and self.probe.argv else READER_FAILED)

    def look(self) -> Raw | None:
        """What came of it, if it is over; past its deadline, a signal more."""
        pid, status = os.waitpid(self.pid, os.WNOHANG)
        now = time.monotonic()
        if pid:
            return self._ended(os.waitstatus_to_exitcode(status))
        if now < self.ends or (not self.sent and self._has_time(now)):
            return None
        if self.sent == 2:  # noqa: PLR2004  TERM, KILL
            abandoned = ABANDONED if self.state == LATE else self.state  # without a processor nobody can even end
            return self._raw(abandoned, None, f"{self.why}, and SIGKILL does not end it")
        os.killpg(self.pid, (signal.SIGTERM, signal.SIGKILL)[self.sent])
        self.ends = now + (TERM_S, KILL_S)[self.sent]
        self.sent += 1
        return None

    def _ended(self, code: int) -> Raw:
        if self.sent:
            return self._raw(self.state, code, self.why)
        if code == CANNOT_START and self.probe.argv:  # execvpe names the last folder that it looked into
            return self._raw(ABSENT, code, "no such program")
        return self._raw(DONE, code)

    def _has_time(self, now: float) -> bool:
        """Whether it has not had its time yet, and the run goes on; if not, why it is ended."""
        deadline_s, waited_s = self.probe.deadline_s, _without_processor_s(self.pid)
        had_s = max(now - self.began - waited_s, 0)
        if had_s < deadline_s and now < self.latest:
            self.ends = min(now + deadline_s - had_s, self.latest)
            return True
        if had_s < deadline_s / 2:
            self.state, self.why = SHORT, (
                f"it had {had_s:.1f} of its {deadline_s:g} s when the time of the run was up"
                f" ({waited_s:.1f} s without a processor)"
            )  # fmt: skip
        else:
            self.state, self.why = LATE, f"no answer within {min(had_s, deadline_s):.3g} s"
        return False

    def _raw(self, state: str, code: int | None, why: str = "") -> Raw:
        ms = int((time.monotonic() - self.began) * 1000)
        raw = Raw(state, self._text(self.out), self._text(self.err), code, ms, why)
        for handle in (self.out, self.err, self.ending):
            if handle >= 0:
                os.close(handle)
        if state in (LATE, SHORT):  # the rest of its group, which may have outlived it
            with suppress(OSError):
                os.killpg(self.pid, signal.SIGKILL)
        return raw

    @staticmethod
    def _text(handle: int) -> str:
        size = min(os.fstat(handle).st_size, OUTPUT_BYTES)
        return os.pread(handle, size, 0).decode("utf-8", "replace")


def _without_processor_s(group: int) -> float:
    """How long the process of a group that waited most was ready to run, and did not; 0 where nobody counts that."""
    most_ns = 0
    for name in os.listdir("/proc"):
        if not name.isdigit():
            continue
        with suppress(OSError, ValueError, IndexError):  # gone, or a kernel that does not tell
            if os.getpgid(int(name)) == group:
                with open(f"/proc/{name}/schedstat", encoding="ascii") as file:
                    most_ns = max(most_ns, int(file.read().split()[1]))
    return most_ns / 1e9


def run(
    probes: Iterable[Probe],
    *,
    deadline_s: float = PASSIVE_S,
    may_load: Callable[[Mapping[str, Raw]], str] = lambda _: "nothing says that this node is idle and reserved",
    path: str = PATH,
) -> dict[str, Raw]:
    """Ask; every probe ends as a Raw. may_load: why the ACTIVE stage may not begin, empty where it may."""
    waiting = list(probes)
    raws: dict[str, Raw] = {}
    end = time.monotonic() + deadline_s
    for stage in STAGES:
        here = [probe for probe in waiting if probe.stage == stage]
        if not here:
            continue
        if stage == ACTIVE and (why := may_load(raws)):
            raws.update({probe.id: Raw(UNASKED, why=why) for probe in here})
            continue
        _stage(here, raws, end, path, stop_when_stuck=stage == DRIVER)
    return raws


def _stage(waiting: list[Probe], raws: dict[str, Raw], end: float, path: str, *, stop_when_stuck: bool) -> None:
    running: list[Child] = []
    stuck = ""
    while waiting or running:
        while waiting and len(running) < WIDTH[waiting[0].stage]:
            probe = waiting.pop(0)
            left = end - time.monotonic()
            if stuck:
                raws[probe.id] = Raw(UNASKED, why=f"not asked: {stuck} got no answer")
                continue
            if left <= probe.pause_s:
                raws[probe.id] = Raw(UNASKED, why="not asked: the time of the run was up")
                continue
            if probe.pause_s:
                time.sleep(probe.pause_s)
            running.append(Child(probe, path, end))
        for child in list(running):
            raw = child.look()
            if raw is not None:
                running.remove(child)
                raws[child.probe.id] = raw
                if stop_when_stuck and raw.state in (LATE, ABANDONED):
                    stuck = " ".join(child.probe.argv)
        _wait(running)


def _wait(running: list[Child]) -> None:
    """Until a child may have ended, or is past its deadline; who looks again and again takes time from who works."""
    ready = select.poll()
    for child in running:
        if child.ending < 0:
            time.sleep(POLL_S)
            return
        ready.register(child.ending, select.POLLIN)
    if running:
        left_s = min(child.ends for child in running) - time.monotonic()
        ready.poll(max(left_s, 0) * 1000 + 1)
