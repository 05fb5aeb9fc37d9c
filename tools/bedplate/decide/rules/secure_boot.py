"""Modules that DKMS builds on the node are not signed by anybody the firmware trusts."""

from collections.abc import Iterator

from bedplate.decide.rule import Finding, Rule, fault, unknown
from bedplate.decide.subject import Item, Subject
from bedplate.model.layers import Layer


def _dkms(item: Item) -> bool:
    name = item.name
    return "-dkms" in name and name != "dkms" and not name.startswith(("dkms", "dh-", "lib"))


def _check(subject: Subject) -> Iterator[Finding]:
    model = subject.model
    built = [item for item in subject.packages.values() if _dkms(item)]
    if model is None or not built or model.secure_boot is False:
        return
    for item in built:
        if model.secure_boot:
            yield fault(
                item, f"{item} is built and signed on the node, hardware {model.model} boots with Secure Boot",
                "ask for Canonical's signed linux-modules-nvidia-…-open-generic, enrol a key of your own (MOK) and say"
                " so in an exception, or turn Secure Boot off in the model and the machines",
            )  # fmt: skip
    if model.secure_boot is None:
        yield unknown(
            built[0], f"models/{model.model}.yml does not say whether hardware {model.model} boots with Secure Boot,"
            f" which {built[0]} does not pass", "add secure_boot: true or false",
        )  # fmt: skip


RULE = Rule(
    id="SECURE-BOOT-DKMS",
    title="no DKMS modules where machines boot with Secure Boot",
    layers=(Layer.DRIVER, Layer.HARDWARE),
    source="Ubuntu Secure Boot: a DKMS module needs an enrolled machine owner key; DOCA-Host from 3.2.0 on is"
    " DKMS source only",
    check=_check,
)
