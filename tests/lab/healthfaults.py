"""Faults of the parts that health checks look at, replayed on a node that has the healthy baseline (healthparts.py)."""

from collections.abc import Callable

from bedplate.model.faults import Refused
from lab import healthparts as parts
from lab.places import Places
from lab.run import on
from unit.health.replays import replay

Change = Callable[[Places, str], str]
XID_79 = "NVRM: Xid (PCI:0000:1b:00): 79, pid='<unknown>', name=<unknown>, GPU has fallen off the bus."
LOST = "Unable to determine the device handle for GPU0: 00000000:1B:00.0: GPU is lost.  Reboot the system to recover\n"


def _sh(places: Places, node: str, script: str) -> None:
    on(node, ["sh", "-euc", script], lab=places, timeout_s=60)


def _laid(places: Places, node: str) -> None:
    if not (places.host(node) / "root" / parts.FOLDER.lstrip("/") / "answers/smi").exists():
        raise Refused(f'{node} has no health baseline: docs/health.md, "Try it in the lab"')


def replayed(case: str, said: str, *probes: str) -> Change:
    """What nvidia-smi says in a recorded case."""

    def change(places: Places, node: str) -> str:
        _laid(places, node)
        for probe in probes or ("smi",):
            parts.answer(places, node, probe, replay(case).raws[probe].out)
        return said

    return change


def as_before(places: Places, node: str) -> str:
    for probe in parts.ANSWERS:
        parts.answer(places, node, probe, replay(parts.BASE).raws[probe].out)
    return "nvidia-smi says what a healthy machine's does"


def seven(places: Places, node: str) -> str:
    replayed("fault-06-seven-gpus", "")(places, node)
    _sh(places, node, "mv /dev/nvidia5 /dev/lab-nvidia5; mv /proc/driver/nvidia/gpus/0000:c3:00.0 /run/lab-gpu5")
    return "one of eight GPUs is gone: from nvidia-smi, /proc and /dev"


def eight(places: Places, node: str) -> str:
    as_before(places, node)
    _sh(places, node, "mv /dev/lab-nvidia5 /dev/nvidia5; mv /run/lab-gpu5 /proc/driver/nvidia/gpus/0000:c3:00.0")
    return "all eight GPUs are there"


def hung(places: Places, node: str) -> str:
    _laid(places, node)
    _sh(places, node, f": > {parts.FOLDER}/hung")
    return "nvidia-smi does not answer, and ignores SIGTERM"


def answers(places: Places, node: str) -> str:
    # The ones that hang sleep in a shell's child: nothing of them outlives the look that asked.
    _sh(places, node, f"rm -f {parts.FOLDER}/hung")
    return "nvidia-smi answers"


def off_the_bus(places: Places, node: str) -> str:
    _laid(places, node)
    _sh(places, node, f"printf '{LOST}' > {parts.FOLDER}/lost".replace("\n", "\\n"))
    parts.say(places, node, [XID_79])
    return "a GPU has fallen off the bus: Xid 79, and nvidia-smi fails"


def on_the_bus(places: Places, node: str) -> str:
    """As after a power cycle: a boot in which the kernel has said nothing of it."""
    _sh(places, node, f"rm -f {parts.FOLDER}/lost")
    return "the GPU is there again; the kernel of this boot has said what it has said"


def port(state: str, physical: str) -> Change:
    def change(places: Places, node: str) -> str:
        folder = f"/sys/class/infiniband/{parts.ADAPTERS[1]}/ports/1"
        _sh(places, node, f"echo '{state}' > {folder}/state; echo '{physical}' > {folder}/phys_state")
        return f"port 1 of {parts.ADAPTERS[1]} is {state.partition(': ')[2]}"

    return change


def clock_off(places: Places, node: str) -> str:
    _laid(places, node)
    parts.serve_time(places)
    parts.follow(places, node, parts.WRONG)
    return f"its time server is {parts.TIME[parts.WRONG]} s ahead"


def clock_right(places: Places, node: str) -> str:
    parts.follow(places, node, parts.RIGHT)
    return "its time server is right"


def full(places: Places, node: str) -> str:
    _laid(places, node)
    _sh(places, node, f"dd if=/dev/zero of={parts.DISK}/filler bs=4k 2>/dev/null || true")
    return f"no space left on {parts.DISK}"


def empty(places: Places, node: str) -> str:
    _sh(places, node, f"rm {parts.DISK}/filler")
    return f"{parts.DISK} has space"


def stale(places: Places, node: str) -> str:
    _laid(places, node)
    return parts.stale_share(places, node)


# name -> what it is, how it is set, how it is mended
TABLE: dict[str, tuple[str, Change, Change]] = {
    "seven-gpus": ("one of its eight GPUs is gone", seven, eight),
    "fabric-in-progress": (
        "no GPU joins the NVLink fabric",
        replayed("fault-60-fabric-in-progress", "fabric.state of all GPUs is In Progress"), as_before,
    ),
    "remap-pending": (
        "a GPU waits for a row remap",
        replayed("fault-21-remap-pending", "a row remap of GPU 3 is pending"), as_before,
    ),
    "hung-driver": ("nvidia-smi does not answer", hung, answers),
    "off-the-bus": ("a GPU has fallen off the bus", off_the_bus, on_the_bus),
    "port-down": ("a port of the fabric is down", port("1: DOWN", "2: Polling"), port("4: ACTIVE", "5: LinkUp")),
    "clock-off": ("its clock follows a server that is wrong", clock_off, clock_right),
    "data-full": (f"its small disk at {parts.DISK} is full", full, empty),
    "stale-mount": (f"the server of its mount at {parts.SHARE} does not answer", stale, parts.unmount_share),
}  # fmt: skip
