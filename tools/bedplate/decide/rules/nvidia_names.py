"""Package names on the right side of two cliffs: 580 for Fabric Manager, 590 for the driver.

A name on the wrong side is virtual in NVIDIA's repository: apt knows it, and has no version of it. Ubuntu's archive has
Fabric Manager of its -server driver under the name with a branch, which is right beside that driver alone.
"""

from collections.abc import Iterator

from bedplate.decide.packages import UNSUFFIXED_FABRIC, nvidia
from bedplate.decide.rule import Finding, Rule, fault
from bedplate.decide.subject import Subject
from bedplate.model.layers import Layer
from bedplate.model.versions import numbers


def _check(subject: Subject) -> Iterator[Finding]:
    driver = subject.driver()
    server = driver is not None and (head := nvidia(driver.name)) is not None and head.server
    for item, said in subject.nvidia():
        number = numbers(item.version, 1)
        if not item.asked or said.server or number is None:
            continue
        (branch,) = number
        if said.branch is not None and said.branch != branch:
            yield fault(
                item, f"{item} is of branch {branch}, its name says {said.branch}",
                f"ask for {said.named(branch, ubuntu=server)}, or for a version of branch {said.branch}",
            )  # fmt: skip
        elif (said.branch is not None or not said.branchless) and item.name != (
            name := said.named(branch, ubuntu=server)
        ):
            virtual = branch >= UNSUFFIXED_FABRIC and said.branch is not None
            why = (
                "is a virtual package of NVIDIA's repository, of which there is no version"
                if virtual
                else "does not exist in that branch"
            )
            yield fault(item, f"{item}: this name {why}", f"ask for {name}, which is its name in branch {branch}")


RULE = Rule(
    id="NVIDIA-NAMES",
    title="packages are named as their branch names them",
    layers=(Layer.DRIVER, Layer.FABRIC),
    source="gpu-driver-container#451 (nvidia-fabricmanager-580=580.126.09-1: version not found); NVIDIA driver"
    " installation guide, renamed packages; gpu-driver-container ubuntu24.04/install.sh",
    check=_check,
    installed=False,
)
