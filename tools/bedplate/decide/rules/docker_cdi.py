"""Docker and containerd new enough for the CDI of the Container Toolkit."""

from collections.abc import Iterator

from bedplate.decide.packages import TOOLKIT
from bedplate.decide.rule import Finding, Rule, fault
from bedplate.decide.subject import Subject
from bedplate.model.layers import Layer
from bedplate.model.versions import at_least

CDI_070 = "1.19.0"  # the toolkit that writes CDI 0.7.0
_NEEDED = {
    "docker-ce": "26.1",
    "docker.io": "26.1",
    "moby-engine": "26.1",
    "containerd.io": "1.7.16",
    "containerd": "1.7.16",
}


def _check(subject: Subject) -> Iterator[Finding]:
    toolkit = subject.first(*TOOLKIT[:2])
    if toolkit is None or not at_least(toolkit.version, CDI_070):
        return
    for name, minimum in _NEEDED.items():
        item = subject.packages.get(name)
        if item is not None and not at_least(item.version, minimum):
            yield fault(
                item, f"{item} does not read CDI 0.7.0, which {toolkit} writes",
                f"ask for {name} {minimum} or later, or for a toolkit before {CDI_070}",
            )  # fmt: skip


RULE = Rule(
    id="DOCKER-CDI",
    title="Docker and containerd read the CDI of the Container Toolkit",
    layers=(Layer.CONTAINER,),
    source="nvidia-container-toolkit 1.19.0 release notes: CDI 0.7.0, Docker 26.1 and containerd 1.7.16 at least",
    check=_check,
)
