"""Packages of one branch only: two of them leave libraries of one beside the kernel module of the other."""

from collections.abc import Iterator

from bedplate.decide.packages import Nvidia, prebuilt
from bedplate.decide.rule import Finding, Rule, fault
from bedplate.decide.subject import Item, Subject
from bedplate.model.layers import Layer


def _check(subject: Subject) -> Iterator[Finding]:
    branch, driver = subject.branch(), subject.driver()
    if driver is None or branch is None:
        return
    named: list[tuple[Item, Nvidia]] = subject.nvidia()
    named += [(item, said) for item in subject.packages.values() if (said := prebuilt(item.name)) is not None]
    for item, said in named:
        # An asked name that does not fit its own version is the business of NVIDIA-NAMES.
        of_its_version = (
            said.stem == "linux-modules-nvidia" or not item.asked or item.version.startswith(f"{said.branch}.")
        )
        if said.branch is not None and said.branch != branch and of_its_version:
            yield fault(
                item, f"{item} is of branch {said.branch}, beside {driver} of branch {branch}",
                "leave one branch, and purge the other in the same change: apt calls the mixture held broken packages",
            )  # fmt: skip


RULE = Rule(
    id="NVIDIA-ONE-BRANCH",
    title="no packages of two driver branches",
    layers=(Layer.DRIVER, Layer.FABRIC),
    source="role-nvidia-driver#33: a change of branch that leaves packages of the old one ends in held broken packages",
    check=_check,
)
