"""Does with failed nodes what the policy says, when the rollout has ended; what cannot be done is said, not raised.

The rollout is over by then: how it ended stands, whatever becomes of these nodes. Each of them stays drained until its
step is through.
"""

import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import click

from bedplate.cli.exchange import exchange, replaced
from bedplate.decide.failednodes import LEAVE, REPLACE, ROLL_BACK, Step
from bedplate.model.faults import BedplateError, NodesFailed
from bedplate.model.nodes import fold
from bedplate.sources.site import Site


class Interrupted(NodesFailed):
    """A person ended a rollout: nothing more is begun."""


Back = Callable[[str, tuple[str, ...]], bool]


@dataclass(frozen=True)
class Amended:
    """A step, and what became of it. done: None: it was not tried; said: why not, or what follows."""

    step: Step
    done: bool | None = None
    said: str = ""

    def as_dict(self) -> dict[str, Any]:
        step = self.step
        return {
            "do": step.do, "nodes": list(step.nodes), "environment": step.environment, "spare": step.spare,
            "done": self.done, "said": self.said or str(step),
        }  # fmt: skip

    def __str__(self) -> str:
        if self.done is None:
            return f"next: {self.step}" + (f" ({self.said})" if self.said else "")
        names, step = fold(self.step.nodes), self.step
        if not self.done:
            return f"NOT done: {step}: {self.said}"
        return f"{names}: rolled back to {step.environment}" if step.do == ROLL_BACK else f"{names}: {self.said}"


def amend_all(
    site: Site, steps: Sequence[Step], *, back: Back, approved_by: str | None, environment: str
) -> list[Amended]:  # fmt: skip
    """Do each step; back: rolls nodes back to an environment, and says whether they run it.

    An interrupt ends this: what comes after it is named, and not begun.
    """
    done = list[Amended]()
    for step in steps:
        try:
            done.append(_amend(site, step, back, approved_by, environment))
        except (Interrupted, KeyboardInterrupt) as fault:
            done.append(Amended(step, done=False, said=str(fault) or "interrupted: the same command goes on with it"))
            break
    return done + [Amended(step) for step in steps[len(done) :]]


def _amend(site: Site, step: Step, back: Back, approved_by: str | None, environment: str) -> Amended:
    try:
        if step.do == ROLL_BACK:
            there = back(step.environment, step.nodes)
            return Amended(step, done=there, said="" if there else f"not all of them run {step.environment} now")
        if step.do == REPLACE and approved_by:
            reason = f"failed in a rollout of {environment}, whose policy says so"
            say = lambda text: click.echo(text, file=sys.stderr)  # noqa: E731  stdout may be a document
            (bad,) = step.nodes
            partitions = exchange(site, bad, step.spare, approved_by=approved_by, reason=reason, say=say)
            return Amended(step, done=True, said=replaced(bad, step.spare, partitions or {}))
    except Interrupted:
        raise
    except (BedplateError, OSError) as fault:  # OSError: of the fleet file, of a program that is not there
        return Amended(step, done=False, said=str(fault))
    assert step.do in (LEAVE, REPLACE)  # noqa: S101
    return Amended(step)
