"""Running commands in the hosts of a lab, from outside: through the namespaces of a host's PID 1, without ssh."""

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Self

from bedplate.model.faults import BadInput, NodesFailed
from bedplate.process import DEADLINE_S, Finished, run
from lab import machine
from lab.controller import ENVIRONMENT
from lab.places import CONTROLLER, Places, places
from lab.record import hosts_of_record
from lab.trees import CHECKOUT_INSIDE

PATH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"


@dataclass(frozen=True)
class Inside:
    """The way into a running host."""

    host: str
    init: int

    @classmethod
    def of(cls, lab: Places, host: str) -> Self | None:
        """None when the host does not run."""
        init = machine.init_of(lab, host)
        return None if init is None else cls(host, init)

    def argv(
        self, command: Sequence[str], *, environment: Mapping[str, str] | None = None, cwd: str | None = None,
        tty: bool = False,
    ) -> list[str]:  # fmt: skip
        """The command line that runs a command in the host, with a clean environment.

        With `tty` the host gives it a terminal of its own (script): ours is none of its devices.
        """
        base = {
            "PATH": PATH,
            "HOME": "/root",
            "USER": "root",
            "LOGNAME": "root",
            "SHELL": "/bin/bash",
            "LANG": "C.UTF-8",
        }
        if self.host == CONTROLLER:
            base |= ENVIRONMENT
        base |= {"TERM": os.environ.get("TERM", "dumb") if tty else "dumb", **(environment or {})}
        where = cwd or (str(CHECKOUT_INSIDE) if self.host == CONTROLLER else "/root")
        words = ["env", f"--chdir={where}", *command]
        if tty:
            quoted = " ".join("'" + word.replace("'", "'\\''") + "'" for word in words)
            words = ["script", "--quiet", "--return", "--command", quoted, "/dev/null"]
        return [
            "nsenter", f"--target={self.init}", "--mount", "--uts", "--ipc", "--net", "--pid", "--cgroup",
            "--root", "--wd", "--", "env", "-i", *(f"{name}={value}" for name, value in base.items()), *words,
        ]  # fmt: skip


def inside(host: str, lab: Places | None = None) -> Inside:
    """The way into a host.

    Raises:
        BadInput: the lab has no such host. NodesFailed: the host does not run.
    """
    lab = lab or places()
    known = hosts_of_record(lab)
    if not known:
        raise NodesFailed(f"no lab runs in {lab.state} (run: bedplate lab up)")
    if host not in known:
        raise BadInput(f"the lab has no host {host}; it has {', '.join(known)}")
    found = Inside.of(lab, host)
    if found is None:
        raise NodesFailed(
            f"host {host} does not run (look: {lab.logs / host}.log, or start anew: bedplate lab up --fresh)"
        )
    return found


def on(
    host: str, argv: Sequence[str], *, check: bool = True, timeout_s: float = DEADLINE_S, stdin: str | None = None,
    environment: Mapping[str, str] | None = None, cwd: str | None = None, lab: Places | None = None,
) -> Finished:  # fmt: skip
    """Run a command in a host to its end and return what it said; on ctl with the site chosen, in the checkout."""
    way = inside(host, lab)
    return run(way.argv(argv, environment=environment, cwd=cwd), check=check, timeout_s=timeout_s, stdin=stdin)
