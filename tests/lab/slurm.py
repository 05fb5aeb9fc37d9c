"""What tests ask of the lab's Slurm: jobs of its users, states of its nodes, what accounting says."""

import json
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from bedplate.process import Finished
from lab.places import SERVICES_HOST
from lab.run import on

PATIENCE_S = 300


def shell(host: str, script: str, *, check: bool = True) -> Finished:
    return on(host, ["bash", "-c", script], check=check, timeout_s=PATIENCE_S)


def user(name: str, script: str, *, host: str = "n1", check: bool = True) -> Finished:
    """What an ordinary user types."""
    return on(host, ["runuser", "-u", name, "--", "bash", "-c", f"cd; {script}"], check=check, timeout_s=PATIENCE_S)


def node(name: str) -> tuple[set[str], str]:
    """State flags and reason, as slurmctld has them."""
    shown = json.loads(on(SERVICES_HOST, ["scontrol", "show", "node", name, "--json"]).out)["nodes"][0]
    return set(shown["state"]), shown["reason"]


def wait_for(what: str, true: Callable[[], object], *, patience_s: float = PATIENCE_S) -> None:
    deadline = time.monotonic() + patience_s
    while not true():
        assert time.monotonic() < deadline, f"waited in vain: {what}"
        time.sleep(1)


def idle(*names: str) -> None:
    wait_for(f"{names} idle", lambda: all(node(name)[0] == {"IDLE"} for name in names))


@contextmanager
def job(name: str, script: str, *words: str) -> Iterator[str]:
    """A batch job that runs; ended afterwards, if it has not ended by itself."""
    text = f"#!/bin/bash\n{script}\n"
    argv = ["runuser", "-u", name, "--", "sbatch", "--parsable", "--chdir=/tmp", "--output=/dev/null", *words]
    number = on("n1", argv, stdin=text).out.strip()
    try:
        wait_for(f"job {number} runs", lambda: shell("n1", f"squeue -h -j {number} -o %T").out.strip() == "RUNNING")
        yield number
    finally:
        shell(SERVICES_HOST, f"scancel {number}", check=False)


def accounted(number: str, fields: str) -> str:
    return shell(SERVICES_HOST, f"sacct -X -n -P -j {number} -o {fields}").out.strip()


def runs(number: str) -> list[str]:
    """States of every run of a job: more than one, and it was interrupted."""
    return shell(SERVICES_HOST, f"sacct -X -n -P -D -j {number} -o State").out.split()


def image() -> str:
    """The squashfs of the lock, named by its digest, as it lies on a node."""
    return on("n1", ["readlink", "-f", "/var/lib/bedplate/images/current.sqsh"]).out.strip()
