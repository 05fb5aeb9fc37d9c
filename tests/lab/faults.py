"""Ways to break a node on purpose: a table; each fault breaks something real and can be mended."""

from collections.abc import Callable
from dataclasses import dataclass

from bedplate.model.faults import BadInput, NodesFailed, Refused
from bedplate.process import run
from lab import healthfaults, hosts, lifecycle, machine, record
from lab.places import CONTROLLER, SERVICES_HOST, Places
from lab.run import on
from lab.standins import FAULTS_ON_NODE

POWER_OFF_S = 15.0
TUNED_FILE = "/etc/nccl.conf"  # rendered by roles/base
IMAGES = "/var/lib/bedplate/images"
WRITTEN_IN_A_ROLLOUT = ("/var/cache/apt/archives", "/var/lib/bedplate")


@dataclass(frozen=True)
class NodeFault:
    """`set_` and `mend` return what they did, in words."""

    description: str
    set_: Callable[[Places, str], str]
    mend: Callable[[Places, str], str]


def apply(places: Places, node: str, fault: str, *, mend: bool) -> str:
    """Set or mend a fault, and note it in the lab's record."""
    if fault not in FAULTS:
        raise BadInput(f"no fault {fault}; there are {', '.join(FAULTS)} (bedplate lab break --list says what they do)")
    with lifecycle.turn(places):
        found = record.read(places)
        if found is None:
            raise Refused("no lab runs (run: bedplate lab up)")
        if node not in found.hosts or node in (CONTROLLER, SERVICES_HOST):
            raise BadInput(f"the lab has no node {node}; it has {', '.join(found.hosts[2:])}")
        has = found.faults.get(node, [])
        if mend and fault not in has:
            raise Refused(f"{node} has no fault {fault}; it has {', '.join(has) or 'none'}")
        if not mend and fault in has:
            raise Refused(
                f"{node} has the fault {fault} already (to undo it: bedplate lab break {node} {fault} --mend)"
            )
        known = FAULTS[fault]
        said = (known.mend if mend else known.set_)(places, node)
        left = [name for name in has if name != fault] if mend else [*has, fault]
        found.faults = {
            **{name: those for name, those in found.faults.items() if name != node},
            **({node: left} if left else {}),
        }
        record.write(places, found)
    return said


def _sh(places: Places, node: str, script: str) -> None:
    on(node, ["sh", "-euc", script], lab=places, timeout_s=60)


def _link(state: str, said: str) -> Callable[[Places, str], str]:
    def change(places: Places, node: str) -> str:
        run(["ip", "-n", places.namespace(node), "link", "set", "host0", state])
        return said

    return change


def _hang(places: Places, node: str) -> str:
    machine.freeze(places, node)
    return "every process of the host is frozen: it answers ping, and nothing else"


def _go_on(places: Places, node: str) -> str:
    machine.thaw(places, [node])
    return "the host goes on"


def _switch_off(places: Places, node: str) -> str:
    machine.power_off(places, [node], patience_s=POWER_OFF_S)
    machine.kill(places, [node])
    machine.remove_nspawn_leftovers(places, node)
    return "the host is switched off"


def _switch_on(places: Places, node: str) -> str:
    hosts.start(places, node)
    state = hosts.wait(places, [node], patience_s=lifecycle.BOOT_S, told=lambda _state: None)[node]
    if state.state != "running":
        raise NodesFailed(f"{node} is {state.state} (log: {places.logs / node}.log)")
    return "the host runs again"


def _fill(places: Places, node: str) -> str:
    # A tiny full file system on top of each directory: what lies there stays readable, nothing can be written.
    _sh(places, node, f"""
for directory in {" ".join(WRITTEN_IN_A_ROLLOUT)}; do
  mkdir -p "$directory"
  top=/run/lab-disk-full/$(echo "$directory" | tr / -)
  mkdir -p "$top"
  mount -t tmpfs -o size=64k tmpfs "$top"
  mkdir "$top/up" "$top/work"
  mount -t overlay overlay -o "lowerdir=$directory,upperdir=$top/up,workdir=$top/work" "$directory"
  dd if=/dev/zero of="$top/filler" bs=4k 2>/dev/null || true
done""")  # fmt: skip
    return f"no space left in {' and '.join(WRITTEN_IN_A_ROLLOUT)}"


def _empty(places: Places, node: str) -> str:
    _sh(places, node, f"""
for directory in {" ".join(WRITTEN_IN_A_ROLLOUT)}; do
  umount "$directory"
  umount "/run/lab-disk-full/$(echo "$directory" | tr / -)"
done
rm -r /run/lab-disk-full""")  # fmt: skip
    return "the space is back"


def _marker(name: str, said: str) -> Callable[[Places, str], str]:
    def change(places: Places, node: str) -> str:
        _sh(places, node, f"mkdir -p {FAULTS_ON_NODE}; : > {FAULTS_ON_NODE}/{name}")
        return said

    return change


def _unmark(name: str) -> Callable[[Places, str], str]:
    def change(places: Places, node: str) -> str:
        _sh(places, node, f"rm -f {FAULTS_ON_NODE}/{name}")
        return "the package's scripts succeed again"

    return change


def _edit(places: Places, node: str) -> str:
    _sh(
        places,
        node,
        f"""
touch {TUNED_FILE}
cp -p {TUNED_FILE} {FAULTS_ON_NODE}.wrong-file
echo 'NCCL_DEBUG=TRACE # by hand' >> {TUNED_FILE}""",
    )
    return f"somebody added a line to {TUNED_FILE} by hand"


def _restore(places: Places, node: str) -> str:
    _sh(places, node, f"mv {FAULTS_ON_NODE}.wrong-file {TUNED_FILE}")
    return f"{TUNED_FILE} is as it was"


def _lose(places: Places, node: str) -> str:
    _sh(
        places,
        node,
        f"""
mkdir -p {IMAGES} {FAULTS_ON_NODE}/images
find {IMAGES} -name '*.sqsh' -type f -exec mv -t {FAULTS_ON_NODE}/images {{}} +""",
    )
    return f"the images in {IMAGES} are gone"


def _find(places: Places, node: str) -> str:
    _sh(
        places,
        node,
        f"""
find {FAULTS_ON_NODE}/images -type f -exec mv -n -t {IMAGES} {{}} +
rm -r {FAULTS_ON_NODE}/images""",
    )
    return f"the images are back in {IMAGES}"


FAULTS: dict[str, NodeFault] = {
    "unreachable": NodeFault("its network link is down", _link("down", "host0 is down"), _link("up", "host0 is up")),
    "off": NodeFault("it is switched off, cleanly", _switch_off, _switch_on),
    "hung": NodeFault("it hangs: connections open and nothing answers", _hang, _go_on),
    "disk-full": NodeFault("no space left where packages and images go", _fill, _empty),
    "bad-package": NodeFault(
        "the driver package refuses to unpack (its preinst fails)",
        _marker("bad-package", "the driver's preinst will fail"), _unmark("bad-package"),
    ),
    "bad-upgrade": NodeFault(
        "the driver package of a later suite refuses to unpack (its preinst fails); that of suite a does not",
        _marker("bad-upgrade", "the later driver's preinst will fail"), _unmark("bad-upgrade"),
    ),
    "slow-package": NodeFault(
        "the driver package takes 20 s to install",
        _marker("slow-package", "the driver's preinst will take 20 s"), _unmark("slow-package"),
    ),
    "half-configured": NodeFault(
        "the driver package unpacks and does not configure (its postinst fails, as a module build does)",
        _marker("half-configured", "the driver's postinst will fail"), _unmark("half-configured"),
    ),
    "wrong-file": NodeFault(f"{TUNED_FILE} was edited by hand", _edit, _restore),
    "no-artifact": NodeFault("the image on its disk is gone", _lose, _find),
    **{name: NodeFault(*known) for name, known in healthfaults.TABLE.items()},
}  # fmt: skip
