"""Open kernel modules on Blackwell: the proprietary ones have no support for it."""

from collections.abc import Iterator

from bedplate.decide.packages import prebuilt
from bedplate.decide.rule import Finding, Rule, fault
from bedplate.decide.subject import Subject
from bedplate.model.layers import Layer

BLACKWELL = ("b100", "b200", "b300", "gb200", "gb300")
_MODULES = frozenset({"nvidia-driver", "nvidia-dkms", "nvidia-kernel-source", "cuda-drivers", "nvidia-headless"})


def _check(subject: Subject) -> Iterator[Finding]:
    model = subject.model
    if model is None or not model.gpus:
        return
    kind = (model.gpu_type or (model.gpu_product or "").split()[-1:][0]).lower()
    if kind not in BLACKWELL:
        return
    for item, said in subject.nvidia():
        if said.stem in _MODULES and not said.open:
            yield fault(
                item, f"{item} has the proprietary kernel modules, hardware {model.model} ({model.gpu_product}) works"
                " with the open ones only",
                f"ask for {item.name}-open" if said.stem != "cuda-drivers" else "ask for nvidia-open, or better for"
                " each package by name",
            )  # fmt: skip
    for item in subject.packages.values():
        if (modules := prebuilt(item.name)) and not modules.open:
            yield fault(
                item, f"{item} has the proprietary kernel modules, hardware {model.model} ({model.gpu_product}) works"
                " with the open ones only", "ask for the -open one",
            )  # fmt: skip


RULE = Rule(
    id="NVIDIA-OPEN-MODULES",
    title="open kernel modules on Blackwell",
    layers=(Layer.DRIVER, Layer.HARDWARE),
    source="NVIDIA driver installation guide: Blackwell needs the open kernel modules",
    check=_check,
)
