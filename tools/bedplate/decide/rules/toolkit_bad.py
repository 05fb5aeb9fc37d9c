"""Versions of the Container Toolkit that others had to take back."""

from collections.abc import Iterator

from bedplate.decide.packages import TOOLKIT
from bedplate.decide.rule import Finding, Rule, fault
from bedplate.decide.subject import Subject
from bedplate.model.layers import Layer
from bedplate.model.versions import same

BAD = {"1.17.7": "excluded by Google's cluster-toolkit from its GPU images"}  # preferences of the A4 blueprint


def _check(subject: Subject) -> Iterator[Finding]:
    for item in subject.of(TOOLKIT):
        for version, why in BAD.items():
            if same(item.version, version):
                yield fault(item, f"{item} is a known bad version, under any driver: {why}", "ask for 1.17.8 or later")


RULE = Rule(
    id="TOOLKIT-BAD",
    title="no known bad version of the Container Toolkit",
    layers=(Layer.CONTAINER, Layer.DRIVER),
    source="GoogleCloudPlatform/cluster-toolkit: A4 blueprint, apt preferences; cluster-toolkit#4144",
    check=_check,
)
