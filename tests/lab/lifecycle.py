"""The life of a lab: up, down, and what state it is in."""

import fcntl
import os
import shutil
import signal
import sys
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path

from bedplate.model.faults import BadInput, BedplateError, Busy, NodesFailed, Refused
from bedplate.process import run
from lab import (
    controller,
    devices,
    hosts,
    labkernel,
    machine,
    network,
    recipe,
    record,
    registry,
    site,
    slurmparts,
    torchstandin,
    trees,
)
from lab.archive import Archive, archive, downloads, downloads_path
from lab.baseimage import BaseImage, base_image
from lab.hosts import State
from lab.places import ARCHIVE_PORT, BRIDGE_ADDRESS, CHECKOUT, CONTROLLER, MAX_NODES, SERVICES_HOST, Places, node_names
from lab.record import Record
from lab.steps import Steps

PROGRAMS = (
    "systemd-nspawn", "ip", "mmdebstrap", "gpg", "aptly", "ssh-keygen", "docker-registry", "skopeo", "htpasswd",
    "openssl", "nsenter", "unshare", "setpriv", "dpkg-deb",
)  # fmt: skip
SERVE = CHECKOUT / "tests/lab/serve.py"
SERVICES = ("archive", "registry")
ROOM_BYTES = 2 << 30  # trees 0.6 GiB, each host some 20 MiB and what a rollout puts there
BOOT_S = 120.0  # 40 hosts took 13 s on two quiet cores


@dataclass(frozen=True)
class Status:
    """State is up (all of it runs, nodes broken on purpose excepted), down (nothing of it exists) or broken."""

    state: str
    record: Record | None
    hosts: tuple[State, ...]
    services: dict[str, bool]
    left: tuple[str, ...] = ()  # what a dead lab left, when there is no record to go by


@contextmanager
def turn(places: Places) -> Iterator[None]:
    """Only one `up`, `down` or `break` at a time. The kernel lets go of the lock of a dead process."""
    with _locked(places.lock):
        _claim(places)
        yield
        if not places.live.exists():
            places.claim.unlink(missing_ok=True)


def _claim(places: Places) -> None:
    """Two labs of one name would end each other: the second is refused."""
    places.claim.parent.mkdir(parents=True, exist_ok=True)
    owner = Path(places.claim.read_text().strip()) if places.claim.exists() else places.state
    if owner != places.state and (owner / "live").exists():
        raise Refused(
            f"the name {places.name} belongs to the lab in {owner} "
            "(set another BEDPLATE_LAB_NAME, or none: it follows from BEDPLATE_LAB)"
        )
    places.claim.write_text(f"{places.state}\n")


@contextmanager
def _locked(path: Path) -> Iterator[None]:
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("a+") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError as fault:
            file.seek(0)
            who = file.read().strip() or "one that just began"
            raise Busy(f"another lab command works on {path.parent}: {who} (wait for it)") from fault
        file.truncate(0)
        file.write(f"process {os.getpid()} since {_now()}\n")
        file.flush()
        try:
            yield
        finally:
            file.truncate(0)


def at_work(places: Places) -> str | None:
    """Who works on the lab now: a lab that is on its way is not whole, and not broken either."""
    if not places.lock.exists():
        return None
    with places.lock.open() as file:
        try:
            fcntl.flock(file, fcntl.LOCK_SH | fcntl.LOCK_NB)
        except BlockingIOError:
            return file.read().strip() or "one that just began"
    return None


def require_root() -> None:
    if os.geteuid() != 0:
        raise BadInput("a lab makes network namespaces, mounts and hosts: run it as root (sudo bedplate lab ...)")


def require_programs() -> None:
    missing = [
        name for name in PROGRAMS if shutil.which(name, path=os.environ.get("PATH", "") + ":/usr/sbin:/sbin") is None
    ]
    if missing:
        raise BadInput(f"the lab needs {', '.join(missing)} on this machine (run: tools/setup)")


def require_room(places: Places) -> None:
    """The state directory must be able to carry overlays, and the trees must fit."""
    kind = run(["stat", "--file-system", "--format=%T", places.state]).out.strip()
    if "overlay" in kind:
        raise BadInput(
            f"{places.state} lies on an overlay, which cannot carry the hosts' own "
            "(set BEDPLATE_LAB to a directory on a real file system)"
        )
    free = min(shutil.disk_usage(path).free for path in (places.state, places.cache.parent) if path.exists())
    if free < ROOM_BYTES:
        raise BadInput(
            f"{places.state} has {free >> 20} MiB free, a lab takes up to {ROOM_BYTES >> 20} "
            "(make room, or set BEDPLATE_LAB to a directory that has it)"
        )


def status(places: Places) -> Status:
    """What there is of a lab, from what runs, not from what a file says."""
    found = record.read(places)
    running = machine.programs(places)
    left = [f"cgroup {name}" for name in running] + [f"namespace {name}" for name in network.namespaces(places)]
    mounts = [places.live, *machine.nspawn_leftovers(places)]
    left += [f"mount {path}" for top in mounts for path in machine.mounts_below(top)]
    services = {name: bool(machine.pids(places, name)) for name in SERVICES}
    if found is None:
        left += [str(places.live)] if places.live.exists() else []
        return Status("broken" if left else "down", None, (), services, tuple(left))
    with ThreadPoolExecutor(8) as pool:
        states = tuple(pool.map(lambda host: hosts.state(places, host), found.hosts))
    # A node that was broken on purpose is as it should be.
    good = all(state.state == "running" or state.host in found.faults for state in states)
    whole = found.phase == "up" and all(services.values()) and good
    return Status("up" if whole else "broken", found, states, services, tuple(left))


def up(places: Places, steps: Steps, *, nodes: int, fresh: bool) -> bool:
    """Bring a lab up; False when one was up already and was left alone."""
    require_root()
    require_programs()
    if not site.FEWEST_NODES <= nodes <= MAX_NODES:
        raise BadInput(f"--nodes {nodes}: a lab has {site.FEWEST_NODES} to {MAX_NODES} nodes")
    with turn(places):
        require_room(places)
        before = status(places)
        if before.state == "up" and before.record is not None and not fresh:
            _same(before.record, nodes)
            steps.say(f"the lab runs since {before.record.since}, with {nodes} nodes: left as it is")
            if before.record.trees != _tree_names(places):
                steps.say(
                    "note: uv.lock or the package lists changed since; `bedplate lab up --fresh` takes the new ones"
                )
            return False
        if before.state != "down":
            steps.say(_found(before))
            _clean(places, steps)
        with _signals_as_exceptions() as deaf:
            try:
                _bring_up(places, steps, nodes)
            except BaseException:
                deaf()
                steps.say(f"the lab did not come up: cleaning up (logs are kept in {places.state / 'last-logs'})")
                _keep_logs(places)
                _clean(places, steps)
                raise
    return True


@contextmanager
def _signals_as_exceptions() -> Iterator[Callable[[], None]]:
    """SIGTERM and SIGHUP end us as Ctrl-C does: by an exception, so that what was begun is cleaned up.

    Yields a function that makes us deaf to all three: cleaning up is seconds, and half of it would be a mess.
    """
    if threading.current_thread() is not threading.main_thread():  # Python hears signals in the main thread alone
        yield lambda: None
        return

    def end(number: int, _frame: object) -> None:
        raise SystemExit(128 + number)

    def deaf() -> None:
        for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
            signal.signal(number, signal.SIG_IGN)

    before = {number: signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)}
    signal.signal(signal.SIGTERM, end)
    signal.signal(signal.SIGHUP, end)
    try:
        yield deaf
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def down(places: Places, steps: Steps, *, purge: bool, keep_registry: bool = False) -> bool:
    """End a lab; False when there was none. With purge the cached trees and archive go too.

    keep_registry: its storage is what the next lab's registry has.
    """
    require_root()
    with turn(places):
        before = status(places)
        existed = before.state != "down"
        if existed:
            _clean(places, steps, keep_registry=keep_registry)
        if purge:
            shutil.rmtree(places.kept_registry, ignore_errors=True)
            shutil.rmtree(places.cache, ignore_errors=True)
            shutil.rmtree(places.state / "last-logs", ignore_errors=True)
            steps.say(f"cache {places.cache} deleted")
    return existed


def _same(found: Record, nodes: int) -> None:
    if found.nodes != nodes:
        raise Refused(
            f"a lab with {found.nodes} nodes runs since {found.since}, {nodes} were asked for "
            f"(run: bedplate lab up --nodes {nodes} --fresh, which ends it and all that is in it)"
        )


def _found(before: Status) -> str:
    if before.state == "up":
        return "the running lab goes, a fresh one comes"
    bad = [f"{state.host} {state.state}" for state in before.hosts if state.state != "running"]
    bad += [f"{name} off" for name, alive in before.services.items() if not alive]
    what = ", ".join(bad) if before.record else ", ".join(before.left)
    if before.record and before.record.phase != "up":
        begun = f"of {before.record.since} (process {before.record.pid})"
        return f"a `lab up` {begun} did not finish: cleaning up what it left"
    return f"what was left of a lab is cleaned up: {what}"


def _tree_names(places: Places) -> list[str]:
    return [path(places).name for path in (trees.node_tree_path, trees.controller_layer_path, trees.venv_layer_path)]


def _materials(places: Places, steps: Steps) -> tuple[trees.Trees, Archive, BaseImage]:
    """Trees beside archive and base image: two cores, two lines of work."""
    # Two labs may share a cache: what one builds, the other must not take for a killed build's leftovers.
    with trees.alone_in(places.cache, steps), ThreadPoolExecutor(2) as pool:
        trees.forget_unfinished(places)
        base = pool.submit(trees.node_tree, places, steps)
        waiting = pool.submit(lambda: (base.result(), trees.trees(places, steps))[1])
        try:
            downloads(places, steps)
            base.result()
            packages = archive(places, steps)
            image = base_image(places, steps)
            made = waiting.result()
        except BaseException:
            machine.end_children()  # the other line of work: nobody wants its tree any more
            raise
        trees.forget_unused(
            places,
            {
                *made.controller,
                packages.public.parents[1],
                image.layout,
                downloads_path(places),
                slurmparts.plugins_path(places),
            },
        )
    return made, packages, image


def _bring_up(places: Places, steps: Steps, nodes: int) -> None:
    names = [CONTROLLER, SERVICES_HOST, *node_names(nodes)]
    places.live.mkdir(parents=True)
    made = Record(nodes, "starting", os.getpid(), _now())
    record.write(places, made)
    lower, packages, image = _materials(places, steps)
    made.trees = _tree_names(places)
    record.write(places, made)
    machine.raise_inotify(len(names))
    with steps.step(f"network, registry, archive and {len(names)} hosts"):
        network.make(places, names)
        store = registry.make(places)
        registry.start(places, store)
        machine.start(
            places, "archive",
            [sys.executable, "-E", str(SERVE), BRIDGE_ADDRESS, str(ARCHIVE_PORT), str(packages.public)],
            log=places.logs / "archive.log", namespace=places.namespace(),
        )  # fmt: skip
        identity, public = hosts.key_pair(places.live / "ssh/id_ed25519", "bedplate-lab")
        roots = {
            name: hosts.make_root(places, name, lower.controller if name == CONTROLLER else lower.node)
            for name in names
        }
        host_keys = {name: hosts.furnish(root, name, names, public) for name, root in roots.items()}
        for name, root in roots.items():
            if name != CONTROLLER:
                labkernel.furnish(root)
            slurmparts.people(root)
            devices.furnish(root, gpus=0 if name in (CONTROLLER, SERVICES_HOST) else devices.GPUS)
        files = site.site_files(
            site.Given(
                nodes=nodes, architecture=trees.architecture(), archive_key=packages.key, real_packages=packages.real,
                registry=registry.ADDRESS, base_repository=registry.BASE_REPOSITORY, base_digest=image.digest,
                recipe=recipe.make(roots[CONTROLLER]),
                host_keys=host_keys, host=packages.host, slurm=packages.slurm, cgroup_v1=bool(machine.v1_controllers()),
            )
        )  # fmt: skip
        controller.furnish(roots[CONTROLLER], store, files, identity)
        for name in names:
            options = controller.nspawn_options(places) if name == CONTROLLER else torchstandin.nspawn_options()
            hosts.start(places, name, options)
    with steps.step("base image into the registry"):
        registry.push_base(places, store, image)
    with steps.step("hosts boot"):
        states = hosts.wait(places, names, patience_s=BOOT_S, told=lambda state: _tell(steps, state))
    bad = [state for state in states.values() if state.state != "running"]
    if bad:
        said = ", ".join(f"{state.host} {state.state} {' '.join(state.failed)}".rstrip() for state in bad)
        raise NodesFailed(f"not every host came up: {said} (logs: {places.state / 'last-logs'})")
    made.phase = "up"
    record.write(places, made)


def _tell(steps: Steps, state: State) -> None:
    if state.state != "running":
        steps.say(f"{state.host}: {state.state} {' '.join(state.failed)}".rstrip())


def _clean(places: Places, steps: Steps, *, keep_registry: bool = False) -> None:
    """Take everything away that a lab of this name has or had, whoever made it and however far it came."""
    # Nothing of a host is kept, so none is asked to shut down: that would be seconds for nothing.
    machine.kill(places, machine.programs(places))
    if keep_registry:
        registry.keep(places)
    network.remove(places)
    hosts.remove(places)
    if not _others(places):
        machine.restore_inotify()
    left = status(places)
    if left.state != "down":
        raise BedplateError(f"the lab is not gone: {', '.join(left.left)} (run: bedplate lab down)")
    steps.say("no host, service, namespace or mount of the lab is left")


def _keep_logs(places: Places) -> None:
    kept = places.state / "last-logs"
    shutil.rmtree(kept, ignore_errors=True)
    if places.logs.is_dir():
        shutil.copytree(places.logs, kept)


def _others(places: Places) -> bool:
    """Is there another lab on this machine?"""
    claims = [claim for claim in places.claim.parent.glob("*") if claim != places.claim]
    return any((Path(claim.read_text().strip()) / "live").exists() for claim in claims)


def _now() -> str:
    return datetime.now(UTC).isoformat(timespec="seconds")
