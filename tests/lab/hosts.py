"""The hosts: a root on an overlay, what it needs before it boots, and waiting until it runs."""

import shutil
import time
import uuid
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

from bedplate.process import run
from lab import machine
from lab.controller import write
from lab.nodepython import compile_once
from lab.places import BRIDGE_ADDRESS, CHECKOUT, CONTROLLER, Places, address
from lab.run import Inside

RUNHOST = CHECKOUT / "tests/lab/runhost"


@dataclass(frozen=True)
class State:
    host: str
    state: str  # what systemctl is-system-running says; off, hung
    failed: tuple[str, ...] = ()


def make_root(places: Places, host: str, lower: Sequence[Path]) -> Path:
    """Mount the root of a host."""
    directory = places.host(host)
    for name in ("up", "work", "root"):
        (directory / name).mkdir(parents=True, exist_ok=True)
    options = f"lowerdir={':'.join(map(str, lower))},upperdir={directory}/up,workdir={directory}/work"
    run(["mount", "-t", "overlay", "overlay", "-o", options, directory / "root"])
    return directory / "root"


def key_pair(path: Path, comment: str) -> tuple[str, str]:
    """An ssh key: private text, public text without its comment."""
    path.parent.mkdir(parents=True, exist_ok=True)
    run(["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-C", comment, "-f", path])
    public = " ".join(path.with_name(path.name + ".pub").read_text().split()[:2])
    return path.read_text(), public


def furnish(root: Path, host: str, hosts: Iterable[str], authorized: str) -> str:
    """Write what a host needs before it boots; its public host key."""
    write(root / "etc/hostname", host + "\n")
    write(root / "etc/machine-id", uuid.uuid4().hex + "\n", mode=0o444)
    # Names are in /etc/hosts. Nobody answers on loopback either, but at once: the kernel limits how often it says
    # "port unreachable" on any other link, and apt, which asks for SRV records, then waits 5 s.
    write(root / "etc/resolv.conf", "nameserver 127.0.0.1\noptions timeout:1 attempts:1\n")
    names = [f"{address(name)} {name}\n" for name in hosts]
    services = f"{BRIDGE_ADDRESS} archive.lab registry.lab\n"
    write(root / "etc/hosts", "127.0.0.1 localhost\n::1 localhost\n" + services + "".join(names))
    write(root / "etc/default/locale", "LANG=C.UTF-8\n")  # sshd's PAM complains of its absence at every login
    write(root / "etc/issue", "Bedplate lab host \\n\n")
    write(
        root / "etc/motd", f"This is {host}, a host of a Bedplate lab. GPU, driver and Fabric Manager are stand-ins.\n"
    )
    compile_once(root)
    (root / "root/.ssh").mkdir(mode=0o700, parents=True, exist_ok=True)
    write(root / "root/.ssh/authorized_keys", authorized + "\n", mode=0o600)
    _, public = key_pair(root / "etc/ssh/ssh_host_ed25519_key", host)
    return public


def start(places: Places, host: str, options: Sequence[str] = ()) -> None:
    argv = [str(RUNHOST), str(places.host(host) / "root"), places.namespace(host), host, *options]
    machine.start(places, host, argv, log=places.logs / f"{host}.log", host=True)


def state(places: Places, host: str) -> State:
    inside = Inside.of(places, host)
    if inside is None:
        return State(host, "off")
    if machine.frozen(places, host):
        return State(host, "hung")
    said = run(inside.argv(["systemctl", "is-system-running"]), check=False, timeout_s=20)
    word = said.out.strip() or "starting"
    if word != "degraded":
        return State(host, word)
    listed = run(
        inside.argv(["systemctl", "list-units", "--failed", "--plain", "--no-legend"]), check=False, timeout_s=20
    )
    return State(host, word, tuple(line.split()[0] for line in listed.out.splitlines() if line.strip()))


def wait(places: Places, hosts: Sequence[str], *, patience_s: float, told: Callable[[State], None]) -> dict[str, State]:
    """Wait until hosts have booted; the state of each, `told` as soon as it is known."""
    found: dict[str, State] = {}
    deadline = time.monotonic() + patience_s
    while len(found) < len(hosts):
        for host in hosts:
            if host in found:
                continue
            now = state(places, host)
            if now.state in {"running", "degraded"} or time.monotonic() > deadline:
                found[host] = now
                told(now)
        time.sleep(0.1)
    return found


def remove(places: Places) -> None:
    """Unmount and delete every host's root."""
    machine.remove_nspawn_leftovers(places)
    machine.unmount_below(places.live)
    left = machine.mounts_below(places.live)
    if left:  # never delete through a mount
        raise OSError(f"still mounted below {places.live}: {', '.join(map(str, left))}")
    shutil.rmtree(places.live, ignore_errors=True)


def lower_of(host: str, node: tuple[Path, ...], controller: tuple[Path, ...]) -> tuple[Path, ...]:
    return controller if host == CONTROLLER else node
