"""A rule about recipes of images, and what it finds."""

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass

from bedplate.decide.images.recipe import Recipe
from bedplate.model.faults import Fault


@dataclass(frozen=True, order=True)
class Finding:
    """One input that is not pinned, or one label that says something else than what it is on."""

    fault: Fault
    rule: str

    def __str__(self) -> str:
        at = self.fault
        return str(Fault(at.file, at.line, f"{self.rule}: {at.found}", at.remedy))


@dataclass(frozen=True)
class Rule:
    """One rule: a file of `decide/images/rules/` has it as RULE; source: where its trap was met."""

    id: str
    title: str
    source: str
    check: Callable[[Recipe], Iterable[Fault]]


def judged(rules: Iterable[Rule], recipe: Recipe) -> Iterator[Finding]:
    for rule in rules:
        for fault in rule.check(recipe):
            yield Finding(fault, rule.id)
