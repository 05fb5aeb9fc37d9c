"""A rollback tried on a spare: which one, and what is recorded of it.

rollback.rehearsed  {"from", "passed", "equal", "returned", "why", "rollouts"} about node:NAME and environment:TARGET
"""

from collections.abc import Sequence
from dataclasses import dataclass

from bedplate.decide.equality import Return
from bedplate.decide.fold import Status, World
from bedplate.model.event import Draft
from bedplate.model.faults import Refused
from bedplate.model.nodes import fold

REHEARSED = "rollback.rehearsed"


@dataclass(frozen=True)
class Rehearsal:
    """What came of one.

    there: the spare ran the target, verified; back: how it equals what it was under it; returned: it runs again what
    it ran before.
    """

    node: str
    left: str
    target: str
    identity: str
    there: bool
    back: Return | None
    returned: bool
    why: str = ""

    @property
    def passed(self) -> bool:
        """It went there and came back; where it had been there before, it was what it had been."""
        return self.there and self.returned and (self.back is None or not self.back.then or self.back.equal)

    @property
    def equal(self) -> str:
        if self.back is None or not self.back.then:
            return "unknown: it was never verified under the target before"
        return "equal" if self.back.equal else f"differs: {', '.join(self.back.differs)}"

    def draft(self, rollouts: Sequence[int]) -> Draft:
        body = {
            "from": self.left, "passed": self.passed, "equal": self.equal, "returned": self.returned,
            "why": self.why or ("" if self.passed else self._why()), "rollouts": list(rollouts),
        }  # fmt: skip
        return Draft(REHEARSED, (f"node:{self.node}", f"environment:{self.target}"), body, self.identity)

    def _why(self) -> str:
        if not self.there:
            return f"it did not reach {self.target}"
        return self.equal if self.returned else f"it did not come back to {self.left}"


def spare_for(world: World, spares: Sequence[str], asked: Sequence[str], identity: str) -> tuple[str, str]:
    """The spare to try it on, and the identity of what it runs.

    spares: of the fleet, in order; asked: those that a person named, or none; identity: of the target.

    Raises:
        Refused: it is no spare, several were named, or none is in a state that is known.
    """
    if len(asked) > 1 or not set(asked) <= set(spares):
        there = fold(spares) or "none"
        raise Refused(f"a rehearsal takes one spare, {fold(asked)} is not one (the group spare: {there})")
    for name in asked or spares:
        state = world.state(name)
        if state.status is Status.VERIFIED and state.runs and state.runs != identity:
            return name, state.runs
    raise Refused(
        f"no spare to rehearse on: of {fold(asked or spares) or 'none'} none runs another environment than the target,"
        " verified (run: bedplate status)"
    )
