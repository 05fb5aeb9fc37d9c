"""Ubuntu's -server packages, or those of NVIDIA's repository: never some of each.

nvidia-fabricmanager-595 is of the -server driver, too: NVIDIA's own has no branch in that name from 580 on, so what
is installed under it came from Ubuntu's archive.
"""

from collections.abc import Iterator

from bedplate.decide.packages import prebuilt
from bedplate.decide.rule import Finding, Rule, fault
from bedplate.decide.subject import Subject
from bedplate.model.layers import Layer


def _check(subject: Subject) -> Iterator[Finding]:
    family = subject.nvidia()
    # Under a name that is only asked for nothing is there yet: NVIDIA-NAMES says how it should read.
    there = [(item, said) for item, said in family if said.server or not item.asked or subject.machine is not None]
    server = [item for item, said in there if said.ubuntu]
    server += [item for item in subject.packages.values() if (said := prebuilt(item.name)) and said.server]
    # These have one name in both archives.
    own = [item for item, said in family if not said.server and said.stem not in _BOTH]
    if server and own:
        for item in server:
            yield fault(
                item, f"{item} is of Ubuntu's -server packages, {own[0]} of NVIDIA's repository",
                "take all of them from one: NVIDIA's has nvlsm and libnvsdm, Ubuntu's archive has not",
            )  # fmt: skip


_BOTH = frozenset({"nvidia-modprobe", "nvidia-persistenced", "nvidia-fabricmanager", "libnvidia-nscq", "nvidia-imex"})

RULE = Rule(
    id="NVIDIA-FLAVOUR",
    title="Ubuntu's -server packages are not mixed with those of NVIDIA's repository",
    layers=(Layer.DRIVER, Layer.FABRIC),
    source="NVIDIA developer forum: nvidia-fabricmanager-595 of the Ubuntu archive is of the -server flavour and does"
    " not match a driver of the CUDA repository",
    check=_check,
)
