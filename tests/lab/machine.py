"""The machine that a lab runs on: its cgroups, and programs that go on in the background.

Two kinds: with systemd as PID 1 every program is a transient unit in a slice of the lab; without it (a container,
a small VM, hybrid cgroup v1) every program gets a directory of its own in each hierarchy that systemd-nspawn uses.
Either way the cgroup is the one handle that finds every process of a dead lab: pid files go stale, and a host's
systemd outlives a killed systemd-nspawn.
"""

import os
import re
import signal
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path

from bedplate.process import run
from lab.places import Places

CGROUP = Path("/sys/fs/cgroup")
REBOOT = 133  # systemd-nspawn --keep-unit ends with it when the host asks for a reboot
INOTIFY = Path("/proc/sys/fs/inotify/max_user_instances")
INOTIFY_NOTED = Path("/run/bedplate-lab.inotify")  # the machine's own value, while labs have it raised
INOTIFY_PER_HOST = 8
INOTIFY_SPARE = 48
POWER_OFF = signal.SIGRTMIN + 4  # what systemd as PID 1 takes for a clean power-off


def has_systemd() -> bool:
    return Path("/run/systemd/system").is_dir()


def _hierarchies() -> list[Path]:
    """Where a program's cgroup has to be made; the last is the cgroup2 one."""
    if (CGROUP / "cgroup.controllers").exists():
        return [CGROUP]
    return [CGROUP / "systemd", *(CGROUP / name for name in v1_controllers()), CGROUP / "unified"]


def v1_controllers() -> list[str]:
    """The controllers that Slurm in a host needs, where they are in cgroup v1 hierarchies of their own.

    A host's cgroup2 has none of them there. Slurm names its directories after the node: only below a directory of
    the host are they those of one lab.
    """
    if (CGROUP / "cgroup.controllers").exists():
        return []
    return [name for name in ("devices", "freezer") if (CGROUP / name / "cgroup.procs").exists()]


def _tops(places: Places) -> list[Path]:
    if has_systemd():
        return [_hierarchies()[-1] / f"{places.name}.slice"]
    return [hierarchy / places.name for hierarchy in _hierarchies()]


def _unit(places: Places, name: str) -> str:
    return f"{places.name}-{name}.service"


def cgroup(places: Places, name: str) -> Path:
    """The cgroup2 directory of a program."""
    return _tops(places)[-1] / (_unit(places, name) if has_systemd() else name)


def programs(places: Places) -> list[str]:
    """Everything of this lab that has a cgroup, alive or not."""
    names = {entry.name for top in _tops(places) if top.is_dir() for entry in top.iterdir() if entry.is_dir()}
    if has_systemd():
        prefix = f"{places.name}-"
        return sorted(name.removeprefix(prefix).removesuffix(".service") for name in names if name.startswith(prefix))
    return sorted(names)


def pids(places: Places, name: str) -> list[int]:
    found: list[int] = []
    for procs in cgroup(places, name).rglob("cgroup.procs"):
        try:
            found += [int(line) for line in procs.read_text().split()]
        except OSError:  # a cgroup that ended while we looked
            continue
    return found


def init_of(places: Places, host: str) -> int | None:
    """PID 1 of a host, seen from the machine; None when the host does not run."""
    try:
        candidates = (cgroup(places, host) / "payload/init.scope/cgroup.procs").read_text().split()
        for pid in candidates:
            status = Path("/proc", pid, "status").read_text()
            if next(line for line in status.splitlines() if line.startswith("NSpid:")).split()[-1] == "1":
                return int(pid)
    except OSError:
        return None
    return None


def start(
    places: Places, name: str, argv: Sequence[str], *, log: Path, namespace: str | None = None,
    environment: Mapping[str, str] | None = None, host: bool = False,
) -> None:  # fmt: skip
    """Start a program that outlives us, in a cgroup of its own, its output appended to a log."""
    log.parent.mkdir(parents=True, exist_ok=True)
    if has_systemd():
        properties = [f"StandardOutput=append:{log}", f"StandardError=append:{log}", "KillMode=mixed"]
        if namespace:
            properties.append(f"NetworkNamespacePath=/run/netns/{namespace}")
        if host:
            properties += [
                "Delegate=yes",
                f"RestartForceExitStatus={REBOOT}",
                f"SuccessExitStatus={REBOOT}",
                "RestartSec=1",
            ]
        run([
            "systemd-run", "--quiet", "--collect", f"--unit={_unit(places, name)}", f"--slice={places.name}.slice",
            *(f"--property={text}" for text in properties),
            *(f"--setenv={key}={value}" for key, value in (environment or {}).items()), *argv,
        ])  # fmt: skip
        return
    directories = [top / name for top in _tops(places)]
    for directory in directories:
        directory.mkdir(parents=True, exist_ok=True)
    enter = "".join(f"echo $$ > {directory}/cgroup.procs || exit 1; " for directory in directories)
    inside = ["ip", "netns", "exec", namespace] if namespace else []
    # setsid --fork: it goes on when we end, and a Ctrl-C in our terminal is not for it.
    run(
        ["setsid", "--fork", "/bin/sh", "-c", f'exec < /dev/null >> "$0" 2>&1; {enter}exec "$@"', log, *inside, *argv],
        env={**os.environ, **(environment or {})}, cwd=Path("/"),
    )  # fmt: skip


def power_off(places: Places, hosts: Sequence[str], *, patience_s: float) -> None:
    """Shut hosts down as a power button would; who is not gone in time is killed with the rest."""
    for host in hosts:
        init = init_of(places, host)
        if init is not None:
            os.kill(init, POWER_OFF)
    deadline = time.monotonic() + patience_s
    while time.monotonic() < deadline and any(pids(places, host) for host in hosts):
        time.sleep(0.05)


def freeze(places: Places, name: str) -> None:
    """Stop every process of a program where it is: what a hanging machine looks like from outside."""
    (cgroup(places, name) / "cgroup.freeze").write_text("1")


def frozen(places: Places, name: str) -> bool:
    try:
        return "frozen 1" in (cgroup(places, name) / "cgroup.events").read_text()
    except OSError:
        return False


def thaw(places: Places, names: Sequence[str]) -> None:
    for name in names:
        switch = cgroup(places, name) / "cgroup.freeze"
        if switch.exists():
            switch.write_text("0")


def kill(places: Places, names: Sequence[str]) -> None:
    """End every process in the cgroups of these programs and take the cgroups away."""
    if has_systemd():
        # `systemctl kill` first: a plain stop of a unit with Restart would wait for a host to shut down.
        for name in names:
            run(["systemctl", "kill", "--signal=KILL", _unit(places, name)], check=False)
        run(["systemctl", "stop", *(_unit(places, name) for name in names)], check=False) if names else None
        run(["systemctl", "reset-failed", *(_unit(places, name) for name in names)], check=False) if names else None
    for name in names:
        switch = cgroup(places, name) / "cgroup.kill"
        if switch.exists():
            switch.write_text("1")
    deadline = time.monotonic() + 10
    while time.monotonic() < deadline and any(pids(places, name) for name in names):
        time.sleep(0.05)
    for top in _tops(places):
        for name in names:
            _remove(top / (_unit(places, name) if has_systemd() else name))
        if not has_systemd() and top.is_dir() and not any(entry.is_dir() for entry in top.iterdir()):
            _remove(top)
    if has_systemd() and not programs(places):  # stopping a slice stops all that is in it
        run(["systemctl", "stop", f"{places.name}.slice"], check=False)


def _remove(directory: Path) -> None:
    """rmdir a cgroup, depth first; a busy one stays and is found again by the next `down`."""
    for inner in sorted(directory.rglob("*"), key=lambda path: len(path.parts), reverse=True):
        if inner.is_dir():
            _rmdir(inner)
    _rmdir(directory)


def _rmdir(directory: Path) -> None:
    for _ in range(20):
        try:
            directory.rmdir()
        except FileNotFoundError:
            return
        except OSError:
            time.sleep(0.05)
        else:
            return


def raise_inotify(hosts: int) -> None:
    """Make room for the inotify instances of hosts: Linux's default of 128 ran out at about 20 of them.

    It is a setting of the whole machine: its own value is noted, and comes back with the last lab.
    """
    own = int(INOTIFY.read_text())
    needed = _inotify_in_use() + hosts * INOTIFY_PER_HOST + INOTIFY_SPARE
    if own < needed:
        if not INOTIFY_NOTED.exists():
            INOTIFY_NOTED.write_text(f"{own}\n")
        INOTIFY.write_text(f"{needed}\n")


def restore_inotify() -> None:
    if INOTIFY_NOTED.exists():
        INOTIFY.write_text(INOTIFY_NOTED.read_text())
        INOTIFY_NOTED.unlink()


def _inotify_in_use() -> int:
    """Instances that root has open now; one that several processes hold is counted for each, which is no harm."""
    count = 0
    for descriptor in Path("/proc").glob("[0-9]*/fd/*"):
        with suppress(OSError):  # gone meanwhile
            count += descriptor.readlink().name == "anon_inode:inotify"
    return count


def end_children() -> None:
    """Kill the programs that we run and wait for: what a build runs ends with it (see trees.contained)."""
    for stat in Path("/proc").glob("[0-9]*/stat"):
        try:
            parent = int(stat.read_text().rpartition(")")[2].split()[1])
            if parent == os.getpid():
                os.kill(int(stat.parent.name), signal.SIGKILL)
        except (OSError, IndexError):  # gone meanwhile
            continue


def mounts_below(directory: Path) -> list[Path]:
    """Mount points below a directory, innermost first."""
    points = [
        line.split()[4].encode().decode("unicode_escape")
        for line in Path("/proc/self/mountinfo").read_text().splitlines()
    ]
    below = [Path(point) for point in points if Path(point).is_relative_to(directory)]
    return sorted(below, key=lambda path: len(path.parts), reverse=True)


def nspawn_leftovers(places: Places, host: str = "(ctl|svc|n[0-9]+)") -> list[Path]:
    """What systemd-nspawn keeps per machine name, of the hosts that a pattern names.

    A killed systemd-nspawn leaves it, and a later one of the same name then refuses to start.
    """
    mine = re.compile(rf"{re.escape(places.name)}-{host}")
    return sorted(path for path in Path("/run/systemd/nspawn").glob("*/*") if mine.fullmatch(path.name))


def remove_nspawn_leftovers(places: Places, host: str = "(ctl|svc|n[0-9]+)") -> None:
    for path in nspawn_leftovers(places, host):
        unmount_below(path)
        with suppress(OSError):  # not empty: harmless, and not ours to judge
            path.rmdir()


def unmount_below(directory: Path) -> None:
    """Take every mount below a directory away; lazily where something still holds it."""
    for point in mounts_below(directory):
        if run(["umount", point], check=False).code:
            run(["umount", "--lazy", point])
