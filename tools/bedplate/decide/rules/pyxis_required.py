"""Pyxis is a `required` plug-in: an optional one that does not load runs the job on the host, and says success."""

import re
from collections.abc import Iterator

from bedplate.decide.rule import Finding, Rule, fault
from bedplate.decide.subject import Subject
from bedplate.model.layers import Layer

_OPTIONAL = re.compile(r"^\s*optional\s+\S*spank_pyxis\.so", re.MULTILINE)


def _check(subject: Subject) -> Iterator[Finding]:
    for line, place in subject.lines(_OPTIONAL):
        yield fault(
            place, f'scheduler plugstack "{line}": a container job runs on the host, with exit code 0,'
            " when the plug-in does not fit",
            "write required instead of optional",
        )  # fmt: skip


RULE = Rule(
    id="PYXIS-REQUIRED",
    title="Pyxis is required, not optional, in Slurm's plug-in stack",
    layers=(Layer.SCHEDULER, Layer.CONFIG),
    source="Slurm spank(8): optional plug-ins that fail are left out; pyxis#95, soperator#2058: jobs ran on the host",
    check=_check,
)
