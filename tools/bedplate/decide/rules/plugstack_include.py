"""No line of Slurm's plug-in stack includes a file by its path: nodes without files of their own do not get it.

`slurmd --conf-server` hands out plugstack.conf and not what it includes by path or by a pattern. A job then starts
without Pyxis, on the host, and succeeds.
"""

import re
from collections.abc import Iterator

from bedplate.decide.rule import Finding, Rule, fault
from bedplate.decide.subject import Subject
from bedplate.model.layers import Layer

_INCLUDE = re.compile(r"^\s*include\s+\S+", re.MULTILINE)


def _check(subject: Subject) -> Iterator[Finding]:
    for line, place in subject.lines(_INCLUDE):
        yield fault(
            place, f'scheduler plugstack "{line}": configless nodes are not given the file, and a'
            " container job runs on the host, with exit code 0",
            "write the lines of that file into plugstack.conf itself",
        )  # fmt: skip


RULE = Rule(
    id="PLUGSTACK-INCLUDE",
    title="Slurm's plug-in stack includes no other file",
    layers=(Layer.SCHEDULER, Layer.CONFIG),
    source="Slurm configless_slurm.html (includes with a path are not sent); sample-physical-ai-scaffolding-kit#5,"
    " soperator#2058",
    check=_check,
)
