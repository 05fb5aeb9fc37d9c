"""DCGM's packages at one version, and of the CUDA major version that driver and image have."""

import re
from collections.abc import Iterator

from bedplate.decide.rule import Finding, Rule, fault
from bedplate.decide.subject import Subject
from bedplate.model.layers import Layer
from bedplate.model.versions import numbers, same

_DCGM = re.compile(
    r"datacenter-gpu-manager-4-(?P<part>core|proprietary|proprietary-cuda[0-9]+|cuda(?P<cuda>[0-9]+)|dev|multinode.*)"
)
FIRST_OF_13 = 580  # the driver branch that came with CUDA 13.0


def _check(subject: Subject) -> Iterator[Finding]:
    dcgm = [(item, found) for item in subject.packages.values() if (found := _DCGM.fullmatch(item.name))]
    core = subject.packages.get("datacenter-gpu-manager-4-core")
    driver, branch = subject.driver(), subject.branch()
    image = numbers(subject.image.cuda, 1) if subject.image.cuda else None
    for item, found in dcgm:
        if core is not None and not same(item.version, core.version):
            yield fault(item, f"{item} is not of the version of {core}", f"ask for {core.version}")
        if not found["cuda"]:
            continue
        major = int(found["cuda"])
        of_driver = 13 if branch is not None and branch >= FIRST_OF_13 else 12
        if driver is not None and branch is not None and major > of_driver:
            yield fault(
                item, f"{item} is for CUDA {major}, {driver} has CUDA {of_driver}",
                f"ask for datacenter-gpu-manager-4-cuda{of_driver}",
            )  # fmt: skip
        elif image is not None and major != image[0]:
            yield fault(
                item, f"{item} is for CUDA {major}, the image has CUDA {subject.image.cuda}"
                f" (from {subject.image.source})",
                f"ask for datacenter-gpu-manager-4-cuda{image[0]}",
            )  # fmt: skip


RULE = Rule(
    id="DCGM-CUDA",
    title="DCGM is of one version, and of the CUDA major of driver and image",
    layers=(Layer.DRIVER, Layer.IMAGE),
    source="DCGM 4 installation: datacenter-gpu-manager-4-cudaX for the CUDA major version of the driver",
    check=_check,
)
