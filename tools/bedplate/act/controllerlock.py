"""One rollout at a time: on this machine by a file, and between controllers by the ledger that they share.

A flock on an open file that Ansible's forked workers inherit: the kernel drops it when the last of them is
gone. A killed controller whose workers still act on nodes therefore keeps later runs out, and one that is
really gone never does. Programs that workers start (ssh) do not inherit it; what they left running on a
node is the business of the node's own lock (playbooks/library/bedplate_node_lock.py).

The file lies beside the ledger: two checkouts of a site, of two operators, may share one, and a rollout that the
other's lock could not see would be taken for dead, and its nodes for nobody's.
"""

import contextlib
import fcntl
import json
import os
import time
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from bedplate.ledger import projection
from bedplate.ledger.connection import PREFIX
from bedplate.ledger.store import Ledger
from bedplate.model.faults import Busy
from bedplate.sources.site import Site

LOCK_FILE = "rollout.lock"
LEDGER_FILE = "ledger.sqlite3"  # whose lock has no name of its own
ABOUT_TO_BEGIN = "another rollout is about to begin on another controller"
LOOK_S = 0.5  # far longer than `bedplate status` holds the lock to see whether it is free


@dataclass(frozen=True)
class Holder:
    """Who keeps others from rolling out. number: of its rollout, where its controller lives and has begun it."""

    said: str
    number: int | None = None


def place(site: Site) -> Path:
    """The lock file of a site's rollouts."""
    if not site.ledger_url.startswith(PREFIX):
        return site.root / LOCK_FILE
    ledger = Path(site.ledger_url.removeprefix(PREFIX)).resolve()
    return ledger.with_name(LOCK_FILE if ledger.name == LEDGER_FILE else f"{ledger.name}-{LOCK_FILE}")


def anybody(site: Site, ledger: Ledger) -> Holder | None:
    """Who rolls out now, on this machine or another controller; None where nobody does."""
    return _here(place(site)) or elsewhere(ledger)


def claim(ledger: Ledger) -> None:
    """Keep other controllers of a shared ledger from rolling out, as long as it is open here or in who forked from us.

    Raises:
        Busy: one of them does; the message says which rollout, who, since when.
    """
    deadline = time.monotonic() + LOOK_S
    while not ledger.claim():
        if time.monotonic() > deadline:
            raise Busy((elsewhere(ledger) or Holder(ABOUT_TO_BEGIN)).said)
        time.sleep(LOOK_S / 10)


def elsewhere(ledger: Ledger) -> Holder | None:
    """The other controller that rolls out by this ledger; None where none does."""
    if ledger.claim(shared=True):
        return None
    running = [record for record in projection.world(ledger).rollouts.values() if record.ended is None]
    if not running:
        return Holder(ABOUT_TO_BEGIN)
    last = running[-1]
    return Holder(
        f"another rollout is running: rollout {last.number} to {last.name} by {last.actor}, since {last.started[:19]}Z,"
        " on another controller of this ledger: wait for its end",
        last.number,
    )


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
            raise Busy(_who(path).said) from None
        os.ftruncate(handle, 0)
        return handle


def describe(handle: int, about: Mapping[str, object]) -> None:
    """Say in the lock file who holds it, for the message to whoever is refused."""
    os.pwrite(handle, json.dumps({"pid": os.getpid(), **about}).encode(), 0)


def release(handle: int) -> None:
    os.close(handle)


def holder(path: Path) -> str | None:
    """The message about who holds the lock, or None where nobody does. Takes nothing and writes nothing."""
    found = _here(path)
    return None if found is None else found.said


def _here(path: Path) -> Holder | None:
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


def _who(path: Path) -> Holder:
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
        return Holder(
            f"another rollout is running: {what} (process {about.get('pid', '?')}): wait for its end",
            about.get("rollout"),
        )
    return Holder(
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
