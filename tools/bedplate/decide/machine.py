"""What a machine says of itself when it is examined: the command that it runs, and the reading of its answer.

The answer has sections, each begun by a line `== NAME`; the last one is `== end`, so one that was cut is none.

    >>> parse_machine("== kernel\\n6.8.0-138-generic\\n…== end\\n", "gpu001").kernel
    '6.8.0-138-generic'
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass

from bedplate.decide.subject import Item, Machine, Place, Subject
from bedplate.model.environment import LayerSpec
from bedplate.model.faults import BadInput, Fault
from bedplate.model.fleet import Node
from bedplate.model.hardware import HardwareModel
from bedplate.model.layers import Layer

# Every part may be absent: a machine without a driver has no /proc/driver/nvidia.
COMMAND = r"""
part() { echo; echo "== $1"; shift; "$@" 2>/dev/null; }
part packages dpkg-query -W -f '${db:Status-Abbrev} ${Package} ${Version}\n'
part kernel uname -r
part os cat /etc/os-release
part driver cat /proc/driver/nvidia/version
part modules ls /sys/module
part serial cat /sys/class/dmi/id/product_serial
part product cat /sys/class/dmi/id/product_name
part plugstack sh -c 'cat /etc/slurm/plugstack.conf /etc/slurm/plugstack.conf.d/*.conf'
echo; echo '== end'
exit 0
"""
PARTS = ("packages", "kernel", "os", "driver", "modules", "serial", "product", "plugstack", "end")
_INSTALLED = re.compile(r"[a-z]i[ R]? +([a-z0-9][a-z0-9+.-]+) (\S+)")
_DRIVER = re.compile(r"Kernel Module.*?\s([0-9]+(?:\.[0-9]+)+)\s")
_OS = re.compile(r'^([A-Z_]+)="?([^"\n]*)"?$', re.MULTILINE)
_NO_SERIAL = frozenset({"", "none", "not specified", "to be filled by o.e.m.", "system serial number", "0"})


@dataclass(frozen=True)
class Examined:
    """What one machine has."""

    packages: Mapping[str, str]
    kernel: str
    distribution: str
    release: str
    driver: str
    modules: frozenset[str]
    serial: str | None
    product: str
    plugstack: tuple[str, ...]


def parse_machine(text: str, node: str) -> Examined:
    """Read an answer.

    Raises:
        BadInput: it is cut, or says nothing of packages, kernel or operating system.
    """
    found: dict[str, list[str]] = {}
    here: list[str] = []
    for line in text.splitlines():
        if line.startswith("== "):
            here = found.setdefault(line[3:], [])
        elif line.strip():
            here.append(line)
    missing = [part for part in PARTS if part not in found]
    rows = (_INSTALLED.fullmatch(line) for line in found.get("packages", []))
    packages: dict[str, str] = {row[1]: row[2] for row in rows if row}
    os = dict(_OS.findall("\n".join(found.get("os", []))))
    told = {"packages": packages, "kernel": found.get("kernel"), "os": os.get("ID")}
    empty = [name for name, has in told.items() if not has]
    if missing or empty:
        what = f"the answer lacks {', '.join(missing)}" if missing else f"the answer says nothing of {', '.join(empty)}"
        raise BadInput([Fault(node, None, what, "look at the machine: dpkg-query -W, uname -r, /etc/os-release")])
    driver = _DRIVER.search("\n".join(found["driver"]) + "\n")
    serial = (found["serial"] or [""])[0].strip()
    return Examined(
        packages, found["kernel"][0].strip(), os["ID"], os.get("VERSION_CODENAME", ""), driver[1] if driver else "",
        frozenset(found["modules"]), None if serial.lower() in _NO_SERIAL else serial,
        (found["product"] or [""])[0].strip(), tuple(found["plugstack"]),
    )  # fmt: skip


def machine_subject(node: Node, examined: Examined, model: HardwareModel | None) -> Subject:
    """A machine as rules judge it: each package in the layer that its name says."""
    place = Place(node.name)
    layers = {layer: LayerSpec() for layer in Layer}
    layers[Layer.OS] = LayerSpec(distribution=examined.distribution, release=examined.release)
    for layer in (Layer.IMAGE, Layer.CODE, Layer.CONFIG, Layer.LAUNCH):
        layers[layer] = LayerSpec(unmanaged="a machine before its first lock")
    return Subject(
        name=node.name, kind=node.kind, place=place,
        packages={
            name: Item(name, version, _layer(name), place) for name, version in examined.packages.items()
        },
        layers=layers, layer_places={}, model=model, locked=True,
        machine=Machine(
            node.name, examined.kernel, examined.modules, examined.driver, examined.serial, node.serial,
            examined.plugstack,
        ),
    )  # fmt: skip


_LAYERS = (
    (Layer.KERNEL, re.compile(r"linux-(image|modules|headers)-.*|linux-(generic|virtual|lowlatency).*")),
    (Layer.FABRIC, re.compile(
        r"nvidia-(fabricmanager|imex).*|libnvidia-nscq.*|libnvsdm.*|nvlink5.*|nvlsm|rdma-core|infiniband-diags|doca-.*"
    )),
    (Layer.CONTAINER, re.compile(r"(lib)?nvidia-container.*|docker.*|containerd.*|moby-.*")),
    (Layer.DRIVER, re.compile(r"(lib|xserver-xorg-video-)?nvidia-.*|cuda-.*|datacenter-gpu-manager.*")),
    (Layer.SCHEDULER, re.compile(r"slurm.*|nvslurm.*|munge|enroot.*|squashfs-tools|sackd")),
)  # fmt: skip


def _layer(name: str) -> Layer:
    return next((layer for layer, pattern in _LAYERS if pattern.fullmatch(name)), Layer.OS)
