"""The example environment for B200, with one thing changed: what rules are tried on."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import cache
from pathlib import Path

from bedplate.decide.rule import Finding, Weight, judged
from bedplate.decide.rules import all_rules
from bedplate.decide.subject import Item, Place, Served, Subject, controllers_of, subjects
from bedplate.model.environment import Environment, parse_environment
from bedplate.model.hardware import HardwareModel, parse_model
from bedplate.model.layers import Layer

SITE = Path(__file__).parents[2] / "inventory"
EXAMPLES = ("2026.11-a", "2026.11-b", "2026.11-controller")


@cache
def text(name: str) -> str:
    return (SITE / f"environments/{name}.yml").read_text()


def environment(name: str = "2026.11-a", changes: Mapping[str, str] | None = None, add: str = "") -> Environment:
    """An example with texts replaced; add: at its end."""
    return parse_environment(environment_text(name, changes) + add, f"{name}.yml")


def environment_text(name: str, changes: Mapping[str, str] | None = None) -> str:
    """An example with texts replaced, every one of which must be there."""
    written = text(name)
    for old, new in (changes or {}).items():
        assert old in written, f"{name} has no {old!r}"
        written = written.replace(old, new)
    return written


def placed(finding: Finding, written: str) -> str:
    """A finding with the key of the line that it names, instead of file and number."""
    line = finding.place.line
    key = "brought along" if line is None else written.splitlines()[line - 1].strip().partition(":")[0]
    return f"{key}: {finding.name}: {finding.found} ({finding.remedy})"


def model(changes: Mapping[str, str] | None = None) -> HardwareModel:
    written = (SITE / "models/hgx-b200.yml").read_text()
    for old, new in (changes or {}).items():
        assert old in written, f"the model has no {old!r}"
        written = written.replace(old, new)
    return parse_model(written, "hgx-b200.yml")


def subject(
    asked: Environment,
    hardware: HardwareModel | None = None,
    *,
    closure: Mapping[str, tuple[str, Layer]] | None = None,
    facts: Mapping[str, str] | None = None,
    previous: Mapping[str, Mapping[str, str]] | None = None,
    served: tuple[Served, ...] = (),
    controller: Environment | None = None,
) -> Subject:
    """One kind of an environment; closure: what it brings along beyond what is asked for."""
    above = {"2026.11-controller": controller or environment("2026.11-controller")}
    made, *_ = subjects(
        asked,
        {"m": hardware or model()},
        model_of=dict.fromkeys(asked.kinds, "m"),
        controllers=controllers_of(asked, above, {}),
        served=served,
        previous=previous,
    )
    brought = {
        name: Item(name, version, layer, Place(asked.document.file, None), asked=False)
        for name, (version, layer) in (closure or {}).items()
    }
    return replace(made, packages={**made.packages, **brought}, facts=facts or {}, locked=bool(closure or facts))


def found(*judge: Subject) -> list[Finding]:
    return judged(all_rules(), judge)


def refused(findings: Sequence[Finding]) -> list[str]:
    return [str(finding) for finding in findings if finding.refuses]


def of_weight(findings: Sequence[Finding], weight: Weight) -> list[str]:
    return [str(finding) for finding in findings if finding.weight is weight]
