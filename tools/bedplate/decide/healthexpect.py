"""What a node must show to be healthy: its hardware and health model, its lock and its place in the fleet, in one.

Nothing comes from the node. A check for which none of the four says what is right is skipped with that as the
reason where a layer is unmanaged, and is a fault of the profile elsewhere: nothing is skipped in silence.
"""

import re
from collections.abc import Iterable, Mapping
from fnmatch import fnmatchcase
from typing import Any

from bedplate.decide.lockdoc import LockDocument, Package
from bedplate.decide.packages import kernel_releases
from bedplate.model.canonical import identity
from bedplate.model.faults import BadInput, Fault
from bedplate.model.fleet import Node
from bedplate.model.hardware import HardwareModel
from bedplate.model.healthprofile import HealthProfile
from bedplate.model.layers import Layer
from bedplate.model.schema import nearest

SCHEMA = 1
OF_NODE = ("host.name", "host.address")
OF_LOCK = ("gpu.driver", "host.kernel", "host.cmdline")  # each is also the check that says why there is none
DRIVERS = ("nvidia-driver-*open", "nvidia-open*", "nvidia-dkms-*open", "nvidia-utils*")
IB = (
    "ib.count",
    "ib.state",
    "ib.subnet",
    "ib.flaps",
    "ib.errors",
    "ib.pcie",
    "ib.firmware",
    "ib.optics",
    "ib.bandwidth",
)
_UPSTREAM = re.compile(r"(?:[0-9]+:)?([0-9]+(?:\.[0-9]+)+)")
# A unit -> the packages, one of which must be in the lock for it to be expected.
UNITS = {
    "nvidia-persistenced.service": ("nvidia-persistenced", "nvidia-compute-utils*"),
    "nvidia-dcgm.service": ("datacenter-gpu-manager*",),
    "slurmd.service": ("slurmd", "slurm-smd-slurmd"),
    "munge.service": ("munge",),
    "docker.service": ("docker-ce",),
    "chrony.service": ("chrony",),
}


def of_node(shared: Mapping[str, Any], node: Node, *, since_us: int = 0) -> dict[str, Any]:
    """The profile of one node; shared: expectation() of its kind.

    since_us: what its kernel reported before (microseconds since 1970) was dealt with.
    """
    own = {"host.name": node.name, "host.address": node.address}
    document = {**shared, "node": node.name, "expect": {**shared["expect"], **own}}
    return document | ({"since_us": since_us} if since_us else {})


def expectation(
    kind: str,
    hardware: HardwareModel,
    health: HealthProfile,
    lock: LockDocument | None,
    checks: Mapping[str, tuple[str, ...]],
) -> dict[str, Any]:
    """What nodes of one kind in one environment have in common; checks: id -> names that it reads.

    Its sha256 is the same for all of them: results with another one were held against something else.

    Raises:
        BadInput: nobody says what a check needs to know.
    """
    said: dict[str, Any] = {name: one.value for name, one in health.expect.items()}
    said |= _hardware(hardware)
    skip = dict(health.skip)
    if hardware.gpus == 0:
        skip |= dict.fromkeys(_of_gpus(checks), "this model has no GPUs")
    skip |= _unwritten(hardware) | _lock(said, lock, kind, hardware)
    # Where the lock does not say it, no check can use it, whatever its name is.
    skip |= {
        check: skip[name]
        for check, names in checks.items()
        for name in names
        if name in OF_LOCK and name not in said and name in skip and check not in skip
    }
    skip |= _since(health, str(said.get("gpu.driver") or ""), skip)
    for check, names in checks.items():
        for name in names:
            if check not in skip and health.unsaid and name not in said and name not in health.limits:
                skip[check] = health.unsaid
    limits = {name: {"unit": one.unit, **one.bounds} for name, one in health.limits.items()}
    _refuse_unknown(health, checks)
    _refuse_silence(health.model, checks, {*said, *limits, *OF_NODE}, skip)
    document = {
        "schema": SCHEMA, "model": hardware.model, "environment": lock.name if lock else "",
        "expect": said, "limits": limits, "skip": dict(sorted(skip.items())),
    }  # fmt: skip
    document["sha256"] = identity(document)
    return document


def _hardware(hardware: HardwareModel) -> dict[str, Any]:
    found: dict[str, Any] = {"ib.count": hardware.nics}
    if hardware.gpus:
        found |= {"gpu.count": hardware.gpus, "gpu.name": hardware.gpu_product}
    if hardware.gpu_type:
        found["gpu.type"] = hardware.gpu_type
    if hardware.cpu:
        found["cpu.threads"] = hardware.cpu.sockets * hardware.cpu.cores_per_socket * hardware.cpu.threads_per_core
    return found


def _unwritten(hardware: HardwareModel) -> dict[str, str]:
    """Checks of what nobody has written down of the machine."""
    found = {}
    if hardware.cpu is None:
        found["host.cpu"] = "the hardware model does not say cpu"
    if hardware.gpus and hardware.gpu_type is None:
        found["gpu.attendance"] = "the hardware model does not say gpu_type"
    if hardware.nics == 0:
        found |= dict.fromkeys(IB, "this model has no adapters of a fabric")
    return found


def _of_gpus(checks: Iterable[str]) -> list[str]:
    parts = ("gpu.", "nvlink.", "fabric.", "driver.", "dcgm.", "nccl.", "nvbandwidth.", "kernel.sxid", "rdma.")
    return [check for check in checks if check.startswith(parts)]


def _lock(said: dict[str, Any], lock: LockDocument | None, kind: str, hardware: HardwareModel) -> dict[str, str]:
    """Add what the lock says; the checks that it says nothing for, with why."""
    if lock is None:
        none = "no environment is known for this node"
        said |= {"services.units": [], "services.active": []}
        without = ("gpu.driver", "host.kernel", "host.cmdline", "host.services", "host.munge", "dcgm.health")
        return dict.fromkeys(without, none) | _without_gpu_units(said, hardware)
    packages = lock.packages(kind)
    skip: dict[str, str] = {}
    driver = _version(packages, DRIVERS)
    if driver:
        said["gpu.driver"] = driver
    elif hardware.gpus:
        skip["gpu.driver"] = _why(lock, Layer.DRIVER)
    kernels = sorted(kernel_releases(packages))
    if len(kernels) == 1:
        said["host.kernel"] = kernels[0]
    else:
        skip["host.kernel"] = _why(lock, Layer.KERNEL) if not kernels else f"the lock has {len(kernels)} kernels"
    words = lock.layers[str(Layer.KERNEL)].get("command_line")
    if words:
        said["host.cmdline"] = list(words)
    else:
        skip["host.cmdline"] = _why(lock, Layer.KERNEL)
    return skip | _services(said, packages)


def _services(said: dict[str, Any], packages: Mapping[str, Package]) -> dict[str, str]:
    """Add the services that an environment brings; the checks of those that it does not."""
    skip: dict[str, str] = {}
    active = [unit for unit, patterns in UNITS.items() if _some(packages, patterns)]
    said["services.active"] = active
    if not active:
        skip["host.services"] = "the environment has no package with a service that is watched"
    for check, patterns in (("host.munge", ("munge",)), ("dcgm.health", ("datacenter-gpu-manager*",))):
        if not _some(packages, patterns):
            skip[check] = f"the environment has no {patterns[0]}"
    if "chrony.service" not in active:
        skip["host.time"] = "the environment has no chrony"
    said["services.units"] = [*active, *(said[name] for name in ("fabric.unit", "fabric.imex") if name in said)]
    if not said["services.units"]:
        said["services.units"] = ["-.mount"]
    return skip


def _without_gpu_units(said: dict[str, Any], hardware: HardwareModel) -> dict[str, str]:
    said["services.units"] = [said[name] for name in ("fabric.unit", "fabric.imex") if name in said and hardware.gpus]
    return {}


def _since(health: HealthProfile, driver: str, skip: Mapping[str, str]) -> dict[str, str]:
    if not driver:
        return {check: "the branch of the driver is not known" for check in health.since if check not in skip}
    branch = int(driver.partition(".")[0])
    return {
        check: f"driver {branch} does not tell it, {first} and later do"
        for check, first in health.since.items()
        if branch < first and check not in skip
    }


def _why(lock: LockDocument, layer: Layer) -> str:
    reason = lock.unmanaged(layer)
    return f"layer {layer} is unmanaged: {reason}" if reason else f"the environment says nothing of it in layer {layer}"


def _some(packages: Mapping[str, Package], patterns: Iterable[str]) -> bool:
    return any(fnmatchcase(name, pattern) for name in packages for pattern in patterns)


def _version(packages: Mapping[str, Package], patterns: Iterable[str]) -> str | None:
    """The upstream version that packages of these names have."""
    for pattern in patterns:
        for name, package in sorted(packages.items()):
            if fnmatchcase(name, pattern) and (match := _UPSTREAM.match(package.version)):
                return match[1]
    return None


def _refuse_unknown(health: HealthProfile, checks: Mapping[str, tuple[str, ...]]) -> None:
    faults = [
        Fault(f"{health.model}.health.yml", None, f'{part}: no check "{check}"', nearest(check, checks))
        for part, named in (("skip", health.skip), ("since", health.since))
        for check in named
        if check not in checks
    ]
    if faults:
        raise BadInput(faults)


def _refuse_silence(
    model: str, checks: Mapping[str, tuple[str, ...]], known: set[str], skip: Mapping[str, str]
) -> None:
    faults = [
        Fault(f"{model}.health.yml", None, f"{check} needs {name}", f'add it to expect or limits, or "skip: {check}"')
        for check, names in checks.items()
        if check not in skip
        for name in names
        if name not in known
    ]
    if faults:
        raise BadInput(faults)
