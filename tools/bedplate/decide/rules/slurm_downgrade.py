"""Slurm never goes back a release: what the newer one wrote, the older one does not read."""

from collections.abc import Iterator

from bedplate.decide.rule import Finding, Rule, fault
from bedplate.decide.rules.slurm_skew import earlier, shown
from bedplate.decide.subject import Subject
from bedplate.model.layers import Layer
from bedplate.model.versions import numbers


def _check(subject: Subject) -> Iterator[Finding]:
    for item, daemon, name, before in earlier(subject):
        ours, theirs = numbers(item.version, 2), numbers(before, 2)
        if ours is not None and theirs is not None and ours < theirs:
            yield fault(
                item, f"{item} is of release {shown(ours)}, nodes run scheduler {daemon} {before} of {name}:"
                " the older release does not read what the newer one wrote",
                f"stay on {shown(theirs)}; to go back all the same, restore the database and state of before, and"
                " say so in an exception",
            )  # fmt: skip


RULE = Rule(
    id="SLURM-DOWNGRADE",
    title="Slurm is not taken back to an earlier release",
    layers=(Layer.SCHEDULER,),
    source="Slurm upgrade guide: a downgrade loses jobs and state; openhpc#186, #216, #670",
    check=_check,
    installed=False,
    transition=True,
)
