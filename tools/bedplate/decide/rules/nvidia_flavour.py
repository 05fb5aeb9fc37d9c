"""Ubuntu's -server packages, or those of NVIDIA's repository: never some of each."""

from collections.abc import Iterator

from bedplate.decide.packages import prebuilt
from bedplate.decide.rule import Finding, Rule, fault
from bedplate.decide.subject import Subject
from bedplate.model.layers import Layer


def _check(subject: Subject) -> Iterator[Finding]:
    family = subject.nvidia()
    server = [item for item, said in family if said.server]
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
