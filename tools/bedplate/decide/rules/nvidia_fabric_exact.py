"""Fabric Manager and the libraries that move with it at the driver's version, to the last digit."""

from collections.abc import Iterator

from bedplate.decide.packages import FABRIC
from bedplate.decide.rule import Finding, Rule, fault
from bedplate.decide.subject import Subject
from bedplate.model.layers import Layer
from bedplate.model.versions import same, upstream


def _check(subject: Subject) -> Iterator[Finding]:
    driver = subject.driver()
    for item, said in subject.nvidia():
        if said.family != FABRIC:
            continue
        if driver is None:
            if subject.managed(Layer.DRIVER):
                yield fault(item, f"{item} without a package of the driver", "ask for the driver in the layer driver")
        elif not same(item.version, driver.version):
            yield fault(
                item, f"{item} is not of the version of {driver}; Fabric Manager refuses any other driver",
                f"ask for {item.name} at {upstream(driver.version)}, by name: as a dependency the newest one comes",
            )  # fmt: skip


RULE = Rule(
    id="NVIDIA-FM-EXACT",
    title="Fabric Manager, nscq, nvsdm and imex have the driver's version",
    layers=(Layer.FABRIC, Layer.DRIVER),
    source="gpu-driver-container#735, gpu-operator#544, azhpc-images#86: Fabric Manager compares itself with the"
    " kernel module and does not start",
    check=_check,
)
