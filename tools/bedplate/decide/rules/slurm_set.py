"""Slurm's components at one version."""

from collections.abc import Iterator

from bedplate.decide.packages import slurm_daemon
from bedplate.decide.rule import Finding, Rule, fault
from bedplate.decide.subject import Subject
from bedplate.model.layers import Layer
from bedplate.model.versions import same


def _check(subject: Subject) -> Iterator[Finding]:
    there = sorted(
        subject.slurm(), key=lambda item: (slurm_daemon(item.name) is None, item.name != "slurm-smd", item.name)
    )
    for item in there[1:]:
        if not same(item.version, there[0].version):
            yield fault(
                item, f"{item} is not of the version of {there[0]}", f"ask for {item.name} at {there[0].version}",
            )  # fmt: skip


RULE = Rule(
    id="SLURM-SET",
    title="Slurm's components have one version",
    layers=(Layer.SCHEDULER,),
    source="Slurm upgrade guide: daemons, commands and plug-ins of one installation are of one build",
    check=_check,
)
