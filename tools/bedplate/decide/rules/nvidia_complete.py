"""A driver comes with its kernel module, and with the program that asks it how it is.

Metapackages of the driver depend on both. A list of leaf packages, and nvlink5, may lack one of them: every health
check, every verification and Slurm's prolog would then find a node without GPUs, after it was changed.
"""

from collections.abc import Iterator

from bedplate.decide.packages import DRIVER, Nvidia, nvidia, prebuilt
from bedplate.decide.rule import Finding, Rule, fault
from bedplate.decide.subject import Subject
from bedplate.model.layers import Layer

WHOLE = frozenset({"nvidia-driver", "nvidia-open", "cuda-drivers"})
MODULES = frozenset({"nvidia-dkms", "nvidia-kernel-open-dkms", "nvidia-headless", *WHOLE})
TOOLS = frozenset({"nvidia-utils", *WHOLE})


def _check(subject: Subject) -> Iterator[Finding]:
    driver, branch, model = subject.driver(), subject.branch(), subject.model
    if driver is None or branch is None or model is None or not model.gpus or not subject.managed(Layer.DRIVER):
        return
    stems = {said.stem for _, said in subject.nvidia()}
    hardware = f"hardware {model.model} has {model.gpus} GPUs"
    if not stems & MODULES and not any(prebuilt(name) for name in subject.packages):
        name = _named("nvidia-dkms", branch, driver.name, open=True)
        yield fault(
            driver, f"{hardware}, {driver} comes without its kernel module", f"ask for {name} at {driver.version}"
        )
    if not stems & TOOLS:
        name = _named("nvidia-utils", branch, driver.name)
        yield fault(
            driver, f"{hardware}, driver has no {name}: nvidia-smi is in it", f"ask for {name} at {driver.version}"
        )


def _named(stem: str, branch: int, driver: str, *, open: bool = False) -> str:  # noqa: A002  NVIDIA's word
    head = nvidia(driver)
    if head is not None and head.server:
        return f"{stem}-{branch}-server{'-open' if open else ''}"
    return Nvidia(stem, DRIVER, branch, server=False, open=open).named(branch)


RULE = Rule(
    id="NVIDIA-COMPLETE",
    title="a driver has its kernel module and nvidia-smi",
    layers=(Layer.DRIVER, Layer.HARDWARE),
    source="nvlink5-580 depends on libnvidia-compute and a kernel module, and not on nvidia-utils",
    check=_check,
)
