"""NVLSM, and what its start needs, where NVSwitches are of the fourth generation.

There Fabric Manager's own start script brings up NVLSM, asks `ibstat` (infiniband-diags) for the port, and needs
ib_umad and mlx5_ib. Without one of them the fabric stays "In Progress", CUDA fails with 802, nvidia-smi looks healthy:
without ib_umad Fabric Manager ends, without mlx5_ib it runs as for the NVSwitches before these.
"""

from collections.abc import Iterator

from bedplate.decide.rule import Finding, Rule, fault, unknown
from bedplate.decide.subject import Subject
from bedplate.model.layers import Layer
from bedplate.model.versions import at_least

GENERATION = 4
MINIMUM = "2025.10.12"  # what nvlink5-580 depends on
MODULES = {
    "ib_umad": "Fabric Manager cannot start",
    "mlx5_ib": 'Fabric Manager starts as on a "Pre-NVL5 system", and the fabric stays "In Progress"',
}
_NEEDED = {
    "nvlsm": "the subnet manager of these NVSwitches",
    "infiniband-diags": "its ibstat is called by Fabric Manager's start script",
}


def _check(subject: Subject) -> Iterator[Finding]:
    model = subject.model
    fabric = next((i for i, said in subject.nvidia() if said.stem == "nvidia-fabricmanager"), None)
    if model is None or not model.gpus or not subject.managed(Layer.FABRIC):
        return
    if model.nvswitch_generation is None:
        yield unknown(
            subject.at(Layer.FABRIC),
            f"models/{model.model}.yml does not say which NVSwitches hardware {model.model} has",
            "add nvswitch_generation: whether nvlsm has to be there follows from it",
        )  # fmt: skip
        return
    if model.nvswitch_generation < GENERATION:
        return
    hardware = f"hardware {model.model} has NVSwitches of generation {model.nvswitch_generation}"
    if fabric is None:
        yield fault(
            subject.at(Layer.FABRIC), f"{hardware}, fabric has no nvidia-fabricmanager",
            "ask for it, at the driver's version",
        )  # fmt: skip
    for name, why in _NEEDED.items():
        if name not in subject.packages:
            yield fault(subject.at(Layer.FABRIC), f"{hardware}, fabric has no {name}: {why}", f"ask for {name}")
    nvlsm = subject.packages.get("nvlsm")
    if nvlsm is not None and not at_least(nvlsm.version, MINIMUM) and (subject.branch() or 0) >= 580:  # noqa: PLR2004
        driver = subject.driver()
        yield fault(nvlsm, f"{nvlsm} is older than {MINIMUM}, which {driver} needs", f"ask for {MINIMUM} or later")
    machine = subject.machine
    for module, what in MODULES.items() if machine is not None else ():
        if machine is not None and module not in machine.modules:
            yield fault(
                subject.at(Layer.FABRIC), f"{hardware}, kernel {machine.kernel} has not loaded {module}: {what}",
                f"modprobe {module}, and write it to /etc/modules-load.d; where modprobe does not find it, the kernel"
                " lacks linux-modules-extra",
            )  # fmt: skip


RULE = Rule(
    id="NVIDIA-NVLSM",
    title="NVLSM and what starts it where NVSwitches are of the fourth generation",
    layers=(Layer.FABRIC, Layer.HARDWARE, Layer.KERNEL),
    source="gpu-operator#2781, CanvOS#700, siderolabs#717, #893; nvidia-fabricmanager-start.sh; nvlink5-580 depends on"
    " nvlsm >= 2025.10.12",
    check=_check,
)
