"""NVIDIA's repository for Ubuntu 26.04 has no branch before 595."""

from collections.abc import Iterator

from bedplate.decide.rule import Finding, Rule, fault
from bedplate.decide.subject import Subject
from bedplate.model.layers import Layer

OLDEST = {"resolute": 595}  # release of Ubuntu -> the oldest branch that the CUDA repository has for it


def _check(subject: Subject) -> Iterator[Finding]:
    driver, branch, release = subject.driver(), subject.branch(), subject.layers[Layer.OS].release
    if driver is not None and branch is not None and release in OLDEST and branch < OLDEST[release]:
        yield fault(
            driver, f"{driver} for os {release}: the oldest branch for that release is {OLDEST[release]}",
            f"upgrade the driver to {OLDEST[release]} first, or stay on the release",
        )  # fmt: skip


RULE = Rule(
    id="NVIDIA-RELEASE",
    title="the branch exists for the release of the operating system",
    layers=(Layer.DRIVER, Layer.OS),
    source="developer.download.nvidia.com/compute/cuda/repos/ubuntu2604: no 580, the oldest is 595",
    check=_check,
)
