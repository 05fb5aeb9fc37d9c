"""Nothing that decides about a node beside the lock: other pins, upgrades and restarts by themselves."""

from collections.abc import Iterator

from bedplate.decide.rule import Finding, Rule, fault
from bedplate.decide.subject import Subject
from bedplate.model.layers import Layer

_WHY = {
    "cuda-keyring": "adds NVIDIA's repository as a source, pinned at 600, dkms and the container toolkit included,"
    " beside the pins of the lock",
    "unattended-upgrades": "upgrades packages by itself, beside the pins of the lock",
    "nvidia-driver-pinning": "pins the driver at 1000 in /etc/apt/preferences.d, beside the pins of the lock",
    "needrestart": "restarts services after a transaction without asking, those that jobs need included",
}


def _check(subject: Subject) -> Iterator[Finding]:
    for item in subject.packages.values():
        for name, why in _WHY.items():
            if item.name == name or item.name.startswith(f"{name}-"):
                yield fault(item, f"{item} {why}", f"take {item.name} out of the environment")


RULE = Rule(
    id="OS-FOREIGN-PINS",
    title="no package that decides about versions or restarts beside the lock",
    layers=(Layer.OS, Layer.DRIVER),
    source="cuda-keyring's preferences (priority 600); nvidia-driver-pinning; unattended-upgrades overriding holds;"
    " needrestart restarting services unasked",
    check=_check,
)
