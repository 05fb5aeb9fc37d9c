"""Slurm's controllers go over no more releases at once than the newer one reads.

slurmdbd converts databases, and slurmctld reads state files, of three earlier releases from 24.11 on, of two before.
What is older than that slurmdbd refuses, and slurmctld starts without its jobs.
"""

from collections.abc import Iterator

from bedplate.decide.rule import Finding, Rule, fault, unknown
from bedplate.decide.rules.slurm_skew import RELEASES, accepts, earlier, oldest, shown
from bedplate.decide.subject import Subject
from bedplate.model.layers import Layer
from bedplate.model.versions import numbers

KEEPERS = ("slurmdbd", "slurmctld")  # what a slurmd keeps is of its running jobs, and those are waited for


def _check(subject: Subject) -> Iterator[Finding]:
    for item, daemon, name, before in earlier(subject):
        if daemon not in KEEPERS:
            continue
        ours, theirs = numbers(item.version, 2), numbers(before, 2)
        if ours is not None and theirs is not None and ours < theirs:
            continue  # the way back is SLURM-DOWNGRADE's
        reads = accepts(ours, theirs) if ours is not None and theirs is not None else None
        if ours is None or theirs is None or reads is None:
            yield unknown(
                item, f"{item} and what {before} of {name} wrote: a release that is not known",
                "see Slurm's upgrade guide",
            )  # fmt: skip
        elif not reads:
            yield fault(
                item, f"{item} does not read what {before} of {name} wrote: {shown(ours)} reads"
                f" {shown(oldest(ours))} and later",
                _way(theirs, ours),
            )  # fmt: skip


def _way(old: tuple[int, ...], new: tuple[int, ...]) -> str:
    first = [release for release in RELEASES if release > old and accepts(release, old)]
    between = [shown(release) for release in first if accepts(new, release)]
    if between:
        *some, last = between
        return f"upgrade by way of {', '.join(some)}{' or ' if some else ''}{last}"
    return f"upgrade by way of {shown(first[-1])}, and of another release after it"


RULE = Rule(
    id="SLURM-JUMP",
    title="Slurm's controllers read what the release before them wrote",
    layers=(Layer.SCHEDULER,),
    source="Slurm upgrade guide: from at most two releases before, three from 24.11 on; openhpc#186, #216, #670",
    check=_check,
    installed=False,
    transition=True,
)
