"""A cross-layer rule, and what judging by rules finds.

- A finding names both layers and both values, what to do next, and where it stands.
- FAULT refuses. UNKNOWN says what is missing to judge: it is shown, and is no pass. NOTE is a verdict to know.
- An exception of the environment lifts the findings of a rule, or of one known issue; what it lifted is shown. One
  that lifts nothing is a fault itself: it would lift something else later, unseen.
"""

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from enum import StrEnum

from bedplate.decide.subject import Item, Place, Subject
from bedplate.model.environment import RuleException
from bedplate.model.faults import Fault
from bedplate.model.layers import Layer

UNUSED = "EXCEPTION-UNUSED"


class Weight(StrEnum):
    FAULT = "fault"
    UNKNOWN = "unknown"
    NOTE = "note"


@dataclass(frozen=True)
class Finding:
    """One thing that a rule found; `issue` names a known issue of a model, `lifted` the exception that holds."""

    found: str
    remedy: str
    place: Place
    weight: Weight = Weight.FAULT
    rule: str = ""
    issue: str = ""
    lifted: RuleException | None = None

    @property
    def refuses(self) -> bool:
        return self.weight is Weight.FAULT and self.lifted is None

    def fault(self) -> Fault:
        return Fault(self.place.file, self.place.line, f"{self.name}: {self.found}", self.remedy)

    @property
    def name(self) -> str:
        return f"{self.rule} {self.issue}" if self.issue else self.rule

    def __str__(self) -> str:
        if self.lifted is not None:
            at = Fault(self.place.file, self.place.line, f"{self.name}: {self.found}")
            return f"{at}: lifted by {self.lifted.approved_by}: {self.lifted.reason}"
        return str(self.fault()) if self.weight is Weight.FAULT else f"{self.weight}: {self.fault()}"

    def as_dict(self) -> dict[str, object]:
        lifted = self.lifted
        return {
            "rule": self.rule, "issue": self.issue, "weight": self.weight.value, "file": self.place.file,
            "line": self.place.line, "found": self.found, "remedy": self.remedy,
            "lifted": None if lifted is None else {"approved_by": lifted.approved_by, "reason": lifted.reason},
        }  # fmt: skip


def fault(at: Item | Place, found: str, remedy: str, *, issue: str = "") -> Finding:
    """What refuses."""
    return Finding(found, remedy, at.place if isinstance(at, Item) else at, issue=issue)


def unknown(at: Item | Place, found: str, remedy: str) -> Finding:
    """What could not be judged, and what it takes."""
    return Finding(found, remedy, at.place if isinstance(at, Item) else at, Weight.UNKNOWN)


def note(at: Item | Place, found: str, *, issue: str = "") -> Finding:
    """A verdict that refuses nothing."""
    return Finding(found, "", at.place if isinstance(at, Item) else at, Weight.NOTE, issue=issue)


@dataclass(frozen=True)
class Rule:
    """One rule: a file of `decide/rules/` has it as RULE.

    source: the upstream document, file or issue that the rule is from.
    asked: whether it judges what is asked for and locked; installed: whether it judges machines as they are.
    transition: it compares with what nodes or controllers run, so a rollout alone can judge all of it.
    """

    id: str
    title: str
    layers: tuple[Layer, ...]
    source: str
    check: Callable[[Subject], Iterable[Finding]]
    asked: bool = True
    installed: bool = True
    transition: bool = False

    def judge(self, subject: Subject) -> Iterator[Finding]:
        applies = self.asked if subject.machine is None else self.installed
        for finding in self.check(subject) if applies else ():
            yield replace(finding, rule=self.id)


def judged(rules: Sequence[Rule], subjects: Iterable[Subject]) -> list[Finding]:
    """Everything that rules find, exceptions applied; each once, in the order of the places.

    The subjects are the kinds of one environment, or one machine.
    """
    found: dict[Finding, None] = {}
    exceptions: dict[RuleException, Place] = {}
    used: set[RuleException] = set()
    for subject in subjects:
        exceptions |= dict(subject.exceptions)
        for finding in (finding for rule in rules for finding in rule.judge(subject)):
            lifting = _lifting(finding, [exception for exception, _ in subject.exceptions])
            used |= {lifting} if lifting else set()
            found[replace(finding, lifted=lifting)] = None
    # What a rollout alone can judge is lifted for some nodes, and not for those that are there already.
    transition = {rule.id for rule in rules if rule.transition}
    for exception, place in exceptions.items():
        if exception not in used and exception.rule not in transition:
            what = f"the exception for {exception.rule} ({exception.approved_by}: {exception.reason}) lifts nothing"
            known = {rule.id for rule in rules} | {finding.issue for finding in found if finding.issue}
            remedy = "remove it" if exception.rule in known else "remove it, or name a rule: bedplate check --rules"
            found[Finding(what, remedy, place, rule=UNUSED)] = None
    order = list(Weight)
    return sorted(
        found, key=lambda f: (f.place.file, f.place.line or 0, order.index(f.weight), f.rule, f.issue, f.found)
    )


def _lifting(finding: Finding, exceptions: Iterable[RuleException]) -> RuleException | None:
    if finding.weight is not Weight.FAULT:
        return None
    return next((entry for entry in exceptions if entry.rule in {finding.rule, finding.issue}), None)
