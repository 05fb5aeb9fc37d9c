"""enroot and enroot+caps at one version."""

from collections.abc import Iterator

from bedplate.decide.rule import Finding, Rule, fault
from bedplate.decide.subject import Subject
from bedplate.model.layers import Layer
from bedplate.model.versions import same


def _check(subject: Subject) -> Iterator[Finding]:
    enroot, caps = subject.first("enroot", "enroot-hardened"), subject.first("enroot+caps", "enroot-hardened+caps")
    if enroot is not None and caps is not None and not same(enroot.version, caps.version):
        yield fault(caps, f"{caps} is not of the version of {enroot}", f"ask for {caps.name} at {enroot.version}")


RULE = Rule(
    id="ENROOT-SET",
    title="enroot and enroot+caps have one version",
    layers=(Layer.SCHEDULER,),
    source="NVIDIA/enroot doc/installation.md: both packages of one release",
    check=_check,
)
