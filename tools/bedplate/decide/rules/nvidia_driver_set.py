"""Every package of the driver at one version: the kernel module, the libraries, the tools."""

from collections.abc import Iterator

from bedplate.decide.packages import DRIVER
from bedplate.decide.rule import Finding, Rule, fault
from bedplate.decide.subject import Subject
from bedplate.model.layers import Layer
from bedplate.model.versions import same


def _check(subject: Subject) -> Iterator[Finding]:
    driver = subject.driver()
    for item, said in subject.nvidia():
        if driver is not None and said.family == DRIVER and not same(item.version, driver.version):
            yield fault(
                item, f"{item} is not of the version of {driver}",
                f"ask for {item.name} at {driver.version}, or for the whole set at {item.version}; name each package, a"
                " metapackage depends with >=",
            )  # fmt: skip


RULE = Rule(
    id="NVIDIA-DRIVER-SET",
    title="every package of the driver has one version",
    layers=(Layer.DRIVER,),
    source="dstack#2348, #2355: cuda-drivers-535=535.183.01 brought nvidia-driver-535 535.247.01;"
    " shine-cluster#30: Driver/library version mismatch after an upgrade of libnvidia alone",
    check=_check,
)
