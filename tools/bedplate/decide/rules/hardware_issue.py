"""Known issues of a machine's model: versions that are on the list, and have a known fault."""

from collections.abc import Iterator
from fnmatch import fnmatchcase

from bedplate.decide.rule import Finding, Rule, fault, note
from bedplate.decide.subject import Subject
from bedplate.model.layers import Layer


def _check(subject: Subject) -> Iterator[Finding]:
    model = subject.model
    for issue in model.known_issues if model is not None else ():
        for item in subject.packages.values():
            if not fnmatchcase(item.name, issue.what) or not issue.versions.holds(item.version):
                continue
            what = f"{item} on this hardware: {issue.found} ({issue.versions.text}; {issue.source})"
            if issue.avoided is not None and subject.machine is None:
                yield note(item, f"{what}; avoided: {issue.avoided}", issue=issue.id)
            else:
                yield fault(item, what, issue.remedy, issue=issue.id)


RULE = Rule(
    id="HARDWARE-ISSUE",
    title="no version with a known issue on the machine's model",
    layers=(Layer.HARDWARE, Layer.DRIVER, Layer.FABRIC, Layer.CONTAINER),
    source="models/MODEL.yml, known_issues: each entry names its source",
    check=_check,
)
