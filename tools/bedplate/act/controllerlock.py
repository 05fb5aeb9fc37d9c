"""One rollout at a time on this controller.

A flock on an open file that Ansible's forked workers inherit: the kernel drops it when the last of them is
gone. A killed controller whose workers still act on nodes therefore keeps later runs out, and one that is
really gone never does. Programs that workers start (ssh) do not inherit it; what they left running on a
node is the business of the node's own lock (playbooks/library/bedplate_node_lock.py).
"""

import contextlib
import fcntl
import json
import os
import time
from collections.abc import Mapping
from pathlib import Path

from bedplate.model.faults import Busy

LOOK_S = 0.5  # far longer than `bedplate status` holds the lock to see whether it is free


def acquire(path: Path) -> int:
    """Take the lock for the life of this process and return its file descriptor.

    Raises:
        Busy: another rollout has it; the message says which, who, since when and by which processes.
    """
    handle = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    deadline = time.monotonic() + LOOK_S
    while True:
        try:
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            if time.monotonic() < deadline:
                time.sleep(LOOK_S / 10)
                continue
            os.close(handle)
            raise Busy(_who(path)) from None
        os.ftruncate(handle, 0)
        return handle


def describe(handle: int, about: Mapping[str, object]) -> None:
    """Say in the lock file who holds it, for the message to whoever is refused."""
    os.pwrite(handle, json.dumps({"pid": os.getpid(), **about}).encode(), 0)


def release(handle: int) -> None:
    os.close(handle)


def holder(path: Path) -> str | None:
    """The message about who holds the lock, or None where nobody does. Takes nothing and writes nothing."""
    try:
        handle = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    except FileNotFoundError:
        return None
    try:
        fcntl.flock(handle, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:
        return _who(path)
    finally:
        os.close(handle)
    return None


def _who(path: Path) -> str:
    text = path.read_text(errors="replace")
    try:
        about = json.loads(text)
    except ValueError:
        about = {}
    pids = _holders(path)
    what = (
        f"rollout {about.get('rollout', '?')} to {about.get('environment', '?')} by {about.get('actor', 'somebody')}, "
        f"since {about.get('since', 'just now')}"
    )
    if about.get("pid") in pids or not about:
        return f"another rollout is running: {what} (process {about.get('pid', '?')}): wait for its end"
    return (
        f"{what}: its controller (process {about.get('pid')}) is dead, but its workers {pids} may still be acting "
        "on nodes: wait until they end, or end them"
    )


def _holders(path: Path) -> list[int]:
    """Processes that have the lock file open (those of other users stay unseen)."""
    target = path.stat()
    pids = []
    for process in Path("/proc").iterdir():
        if not process.name.isdigit() or int(process.name) == os.getpid():
            continue
        with contextlib.suppress(OSError):
            for descriptor in (process / "fd").iterdir():
                with contextlib.suppress(OSError):
                    found = descriptor.stat()
                    if (found.st_dev, found.st_ino) == (target.st_dev, target.st_ino):
                        pids.append(int(process.name))
                        break
    return sorted(pids)
