"""The launcher: one on each server; starts torchrun there, and ends with a status that the submission can act on.

| status | means | the submission |
|---|---|---|
| 0 | the last step is done, its checkpoint complete | is done |
| 75 | ended early by a signal or the time limit, checkpoint complete | starts it again |
| 2 | an input is wrong; nothing was computed | shows the message |
| 4 | ranks did not end in time after they were told to | looks at the log |
| 1 | a rank failed | looks at the log |

torchrun itself ends with 1 whenever a signal came; so what counts is what the ranks wrote down.
"""

import os
import signal
import socket
import subprocess
import sys
import time
import uuid
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from bedplate_train import checkpoints, stopping
from bedplate_train.configuration import Configuration
from bedplate_train.faults import FAILED, FINISHED, HUNG, REFUSED, STOPPED, Fault, Refused
from bedplate_train.text import read_json

PASSED_ON = (signal.SIGTERM, signal.SIGUSR1, signal.SIGUSR2, signal.SIGINT)
HEARD_BY_TORCHRUN = "SIGTERM,SIGINT,SIGHUP,SIGQUIT,SIGUSR1,SIGUSR2"  # unnamed, SIGUSR1 would kill it


@dataclass(frozen=True)
class Place:
    """Which server of the run this is, and where its first rank listens."""

    servers: int
    number: int
    address: str
    port: int


def place(configuration: Configuration, environment: Mapping[str, str]) -> Place:
    """From Slurm where it started the launcher, else this one server.

    Raises:
        Refused: Slurm gave another number of servers than the configuration has.
    """
    wanted = configuration.machines.servers
    if "SLURM_NODEID" in environment and int(environment.get("SLURM_NNODES", "1")) > 1:
        given = int(environment["SLURM_NNODES"])
        if given != wanted:
            said = f"the job has {given} servers, machines.servers is {wanted}"
            raise Refused([Fault("SLURM_NNODES", said, "submit with --nodes as the configuration says")])
        address = environment.get("MASTER_ADDR") or first_of(environment["SLURM_JOB_NODELIST"])
        port = int(environment.get("MASTER_PORT") or 20000 + int(environment["SLURM_JOB_ID"]) % 10000)
        return Place(given, int(environment["SLURM_NODEID"]), address, port)
    if wanted != 1:
        said = f"machines.servers is {wanted}, and this was not started by srun on as many"
        raise Refused([Fault("SLURM_NODEID", said, "start it with srun, one task a server")])
    return Place(1, 0, "127.0.0.1", free_port())


def first_of(nodes: str) -> str:
    """The first host of a Slurm list: `gpu[003-010,12]` begins with gpu003."""
    head, bracket, rest = nodes.partition("[")
    if not bracket or "," in head:
        return head.partition(",")[0]
    numbers = rest.partition("]")[0]
    return head + numbers.partition(",")[0].partition("-")[0]


def free_port() -> int:
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        return int(listener.getsockname()[1])


def torchrun(where: Place, processes: int, shutdown_s: int, program: Sequence[str]) -> list[str]:
    """The command line; ranks are numbered in the order of the servers, which is what the map counts on."""
    return [
        *(sys.executable, "-m", "torch.distributed.run"),
        *("--nnodes", str(where.servers), "--node-rank", str(where.number)),
        *("--master-addr", where.address, "--master-port", str(where.port)),
        *("--nproc-per-node", str(processes), "--max-restarts", "0"),
        *("--signals-to-handle", HEARD_BY_TORCHRUN),
        *("--shutdown-timeout", str(shutdown_s)),  # its default is shorter than the save of a large model
        *program,
    ]


def environment(configuration: Configuration, given: Mapping[str, str], outcome: Path) -> dict[str, str]:
    found = {**given, "BEDPLATE_TRAIN_OUTCOME": str(outcome)}
    found["BEDPLATE_TRAIN_STARTED"] = given.get("BEDPLATE_TRAIN_STARTED") or str(time.time())
    found.setdefault("OMP_NUM_THREADS", "1")
    if configuration.parallel.tensor > 1 and float(configuration.machines.architecture) < 10:  # noqa: PLR2004
        found["CUDA_DEVICE_MAX_CONNECTIONS"] = "1"  # Megatron demands it for tensor parallelism before Blackwell
    return found


def launch(configuration: Configuration, path: Path) -> int:
    """Run this server's part; the exit status."""
    where = place(configuration, os.environ)
    outcome = Path(configuration.paths.run) / "launches" / f"{uuid.uuid4().hex}.json"
    try:
        outcome.parent.mkdir(parents=True, exist_ok=True)
    except OSError as fault:
        raise Refused([Fault("paths.run", f"{outcome.parent} cannot be made: {fault.strerror}")]) from fault
    shutdown = int(max(configuration.stop.margin_s, 60))
    program = ["-m", "bedplate_train.worker", str(path)]
    command = torchrun(where, configuration.machines.gpus_per_server, shutdown, program)
    heard: list[int] = []
    process = subprocess.Popen(
        command,
        env=environment(configuration, os.environ, outcome),
        # Without its launcher torchrun ends as if asked to: with a checkpoint.
        preexec_fn=lambda: stopping.end_with_parent(signal.SIGTERM),  # noqa: PLW1509 - this process has one thread
    )

    def pass_on(number: int, _frame: Any) -> None:
        heard.append(number)
        if process.poll() is None:
            process.send_signal(number)

    before = {number: signal.signal(number, pass_on) for number in PASSED_ON}
    try:
        process.wait()
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
    status, said = verdict(outcome, process.returncode, signalled=bool(heard))
    latest = checkpoints.every(Path(configuration.paths.run) / "checkpoints")
    where_to = f"; latest complete checkpoint: {latest[-1].path}" if latest else "; no complete checkpoint"
    print(f"bedplate-train: {said}{where_to}", file=sys.stderr, flush=True)
    return status


def verdict(outcome: Path, returned: int, *, signalled: bool) -> tuple[int, str]:
    """The exit status, and the sentence that says why."""
    failures = sorted(outcome.parent.glob(f"{outcome.stem}-rank-*.txt"))
    ended: dict[str, Any] = read_json(outcome) if outcome.exists() else {}
    status = ended.get("status")
    if status == "refused":
        found = REFUSED, "refused: " + "; ".join(ended["faults"])[:2000]
    elif failures:
        last = failures[0].read_text(errors="replace").strip().rpartition("\n")[2]
        found = FAILED, f"failed on {len(failures)} ranks of this server, {failures[0]}: {last}"
    elif status == "finished":
        found = FINISHED, f"finished at step {ended['step']}"
    elif status == "stopped":
        found = STOPPED, f"stopped at step {ended['step']} ({ended['reason']})"
    elif status is None and signalled:
        found = STOPPED, "stopped before the first step"
    elif signalled:
        found = HUNG, "the ranks did not end in time after the signal: no checkpoint of this end"
    else:
        found = FAILED, f"torchrun ended with {returned}, and no rank wrote down why (killed? out of memory?)"
    return found
