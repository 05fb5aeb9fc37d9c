"""mksquashfs is none of the versions that write damaged images."""

from collections.abc import Iterator

from bedplate.decide.rule import Finding, Rule, fault
from bedplate.decide.subject import Subject
from bedplate.model.layers import Layer
from bedplate.model.versions import Range, parse_range, upstream

CORRUPTING: tuple[tuple[str, str, str], ...] = (
    (
        ">=4.7,<4.7.5",
        "damages images with sparse files and fragments (squashfs-tools#339, #340)",
        "4.7.5 or later, or 4.6.1",
    ),
    (">=4.4,<4.5", "has a race in the writer of fragments (squashfs-tools#103)", "4.6.1"),
)


def _check(subject: Subject) -> Iterator[Finding]:
    tools = subject.packages.get("squashfs-tools")
    for text, why, instead in CORRUPTING if tools is not None else ():
        bad: Range | None = parse_range(text)
        if tools is not None and bad is not None and bad.holds(upstream(tools.version)):
            yield fault(
                tools, f"{tools} {why}: the image that is made or unpacked with it may differ", f"ask for {instead}"
            )


RULE = Rule(
    id="SQUASHFS-TOOLS",
    title="squashfs-tools is no version that damages images",
    layers=(Layer.SCHEDULER, Layer.IMAGE),
    source="plougher/squashfs-tools#339, #340 (fixed in 4.7.5), #103; bottlerocket-sdk#51",
    check=_check,
)
