"""A Slurm over links of a fixed rate: slurmctld at the source, a slurmd in each node's namespace, a munged for all.

Nothing of it is a service of the machine: key, socket, state and logs lie in one directory, and the programs end with
the block. All nodes see one file system, so each slurmd has `here`, a directory with the same name on every node,
bound to that node's own (in the mount namespace that `ip netns exec` makes).
"""

import os
import secrets
import shutil
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from pathlib import Path

from bedplate.process import run
from lab.links import Links, started

PROGRAMS = ("munged", "slurmctld", "slurmd", "salloc", "sbcast", "sinfo")
PACKAGES = "munge slurmctld slurmd slurm-client"  # Debian's and Ubuntu's
PATIENCE_S = 60
# sbcast waits MessageTimeout for each block to be at every node: 8 blocks of 8 MB over one link of 40 Mbit are 13 s,
# and with the default of 10 s it ends with "Socket timed out" or "Connection reset by peer", and nobody has the file.
MESSAGE_TIMEOUT_S = 100
CONF = """
ClusterName=links
SlurmctldHost=localhost({source})
SlurmUser=root
SlurmdUser=root
AuthType=auth/munge
AuthInfo=socket={folder}/munge.socket
CredType=cred/munge
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
MpiDefault=none
SelectType=select/cons_tres
ReturnToService=2
StateSaveLocation={folder}/state
SlurmdSpoolDir={folder}/spool/%n
SlurmctldPidFile={folder}/slurmctld.pid
SlurmdPidFile={folder}/slurmd-%n.pid
SlurmctldLogFile={folder}/slurmctld.log
SlurmdLogFile={folder}/slurmd-%n.log
SlurmdParameters=config_overrides
MessageTimeout={timeout}
MailProg=/bin/true
{nodes}
PartitionName=all Nodes=ALL Default=YES State=UP
"""


def missing() -> list[str]:
    """Programs that are not installed: without all of them there is no Slurm here."""
    return [program for program in PROGRAMS if _path(program) is None]


@contextmanager
def slurm(links: Links, disks: Mapping[str, Path], folder: Path) -> Iterator[dict[str, str]]:
    """The environment of Slurm's commands, once all nodes are idle; `disks` are what nodes see as `folder`/here."""
    _configure(links, folder)
    environment = {**os.environ, "SLURM_CONF": str(folder / "slurm.conf"), "PATH": _search()}
    with ExitStack() as stack:
        munged = [
            # Root asks it alone: a way to its socket that is closed to others, which it minds, is as it should be.
            _program("munged"), "--foreground", "--force", f"--key-file={folder}/key",
            f"--socket={folder}/munge.socket", f"--pid-file={folder}/munged.pid", f"--log-file={folder}/munged.log",
            f"--seed-file={folder}/seed",
        ]  # fmt: skip
        said = stack.enter_context((folder / "said.log").open("wb"))
        quiet = {"stdout": said, "stderr": said, "env": environment}
        stack.enter_context(started(munged, **quiet))
        _until((folder / "munge.socket").exists, folder, "munged has no socket")
        controller = [_program("slurmctld"), "-D", "-f", str(folder / "slurm.conf")]
        stack.enter_context(started(links.inside(links.source, controller), **quiet))
        for node in links.nodes:
            bound = 'mount --bind "$1" "$2" && shift 2 && exec "$@"'
            daemon = [_program("slurmd"), "-D", "-N", node, "-f", str(folder / "slurm.conf")]
            argv = ["sh", "-c", bound, "sh", str(disks[node]), str(folder / "here"), *daemon]
            stack.enter_context(started(links.inside(node, argv), **quiet))
        asked = links.inside(links.source, ["sinfo", "-h", "-t", "idle", "-o", "%D"])

        def idle() -> bool:
            return run(asked, check=False, env=environment).out.strip() == str(len(links.nodes))

        _until(idle, folder, f"{len(links.nodes)} nodes do not become idle")
        yield environment


def _configure(links: Links, folder: Path) -> None:
    for name in ("state", "spool", "here"):
        (folder / name).mkdir(parents=True)
    key = folder / "key"
    key.touch(0o600)
    key.write_bytes(secrets.token_bytes(128))
    nodes = "\n".join(
        f"NodeName={node} NodeHostname={node} NodeAddr={links.address_of(node)} CPUs=1 RealMemory=100 State=UNKNOWN"
        for node in links.nodes
    )
    text = CONF.format(source=links.address_of(links.source), folder=folder, nodes=nodes, timeout=MESSAGE_TIMEOUT_S)
    (folder / "slurm.conf").write_text(text)
    # Before 23.11 there is no `disabled`, and an empty file lets the daemons look for cgroups that they do not need.
    old = any(f" {release}" in run([_program("slurmctld"), "-V"]).out for release in ("20.", "21.", "22.", "23.02"))
    plugin = "CgroupPlugin=cgroup/v1\nCgroupAutomount=no\n" if old else "CgroupPlugin=disabled\n"
    (folder / "cgroup.conf").write_text(plugin)


def _until(reached: Callable[[], bool], folder: Path, what: str) -> None:
    deadline = time.monotonic() + PATIENCE_S
    while not reached():
        if time.monotonic() > deadline:
            for log in sorted(folder.glob("*.log")):
                print(f"{log.name}: {log.read_text()[-500:]}", file=sys.stderr)
            raise TimeoutError(f"{what} within {PATIENCE_S} s")
        time.sleep(0.2)


def _search() -> str:
    return f"{os.environ.get('PATH', os.defpath)}:/usr/sbin:/sbin"  # Debian has the daemons in /usr/sbin


def _path(program: str) -> str | None:
    return shutil.which(program, path=_search())


def _program(program: str) -> str:
    found = _path(program)
    if found is None:
        raise FileNotFoundError(f"no {program}: install {PACKAGES}")
    return found
