"""The four packages of NVIDIA's Container Toolkit at one version, each by name."""

from collections.abc import Iterator

from bedplate.decide.packages import TOOLKIT
from bedplate.decide.rule import Finding, Rule, fault
from bedplate.decide.subject import Subject
from bedplate.model.layers import Layer
from bedplate.model.versions import same


def _check(subject: Subject) -> Iterator[Finding]:
    there = subject.of(TOOLKIT)
    if not there:
        return
    head = there[0]
    for name in TOOLKIT:
        item = subject.packages.get(name)
        if item is None:
            if head.name == TOOLKIT[0]:  # the libraries alone are what Enroot needs
                yield fault(head, f"{head} without {name}", f"ask for {name} at {head.version}: else the newest comes")
        elif not same(item.version, head.version):
            yield fault(item, f"{item} is not of the version of {head}", f"ask for {name} at {head.version}")


RULE = Rule(
    id="TOOLKIT-SET",
    title="the four packages of the Container Toolkit have one version",
    layers=(Layer.CONTAINER,),
    source="nvidia-container-toolkit#1093, #1091, enroot#232, cluster-toolkit#4144: a newer library under an"
    " older toolkit",
    check=_check,
)
