"""The machine that answers is the one of nodes.csv."""

from collections.abc import Iterator

from bedplate.decide.rule import Finding, Rule, fault, unknown
from bedplate.decide.subject import Subject
from bedplate.model.layers import Layer


def _check(subject: Subject) -> Iterator[Finding]:
    machine = subject.machine
    if machine is None or machine.serial == machine.expected_serial:
        return
    if machine.serial is None:
        what = f"hardware does not say its serial number, nodes.csv says {machine.expected_serial}"
        yield unknown(subject.place, what, "look at the machine: /sys/class/dmi/id/product_serial")
    else:
        yield fault(
            subject.place, f"hardware says serial number {machine.serial}, nodes.csv says {machine.expected_serial}",
            "another machine has this address, or nodes.csv is wrong: correct it before anything is changed",
        )  # fmt: skip


RULE = Rule(
    id="HARDWARE-SERIAL",
    title="the machine is the one of nodes.csv",
    layers=(Layer.HARDWARE,),
    source="docs/site.md: a node is known by its serial number",
    check=_check,
    asked=False,
)
