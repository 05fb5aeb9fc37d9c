"""Image, modules, extra modules and headers of one kernel release, and the metapackages pinned to the same.

A hold on the image alone lets linux-image-generic bring the next one, without the driver's modules; an image without
linux-modules-extra lacks what NVLSM's start needs; without headers DKMS builds nothing. Debian has its modules in the
image and has headers for those who build.
"""

import re
from collections.abc import Iterator

from bedplate.decide.packages import Kernel, kernel
from bedplate.decide.rule import Finding, Rule, fault
from bedplate.decide.subject import Item, Subject
from bedplate.model.layers import Layer
from bedplate.model.versions import compare

PARTS = ("image", "modules", "modules-extra", "headers")
_DEBIAN_IMAGE = re.compile(r"linux-image-([0-9].*?)-((?:cloud-|rt-)?(?:amd64|arm64))")  # 6.12.117+deb13-cloud-amd64


def _check(subject: Subject) -> Iterator[Finding]:
    os = subject.layers.get(Layer.OS)
    yield from (_debian if os is not None and os.distribution == "debian" else _ubuntu)(subject)


def _debian(subject: Subject) -> Iterator[Finding]:
    if subject.machine is not None:
        return  # the support lists of machines are Ubuntu's
    for item in list(subject.packages.values()):
        if (image := _DEBIAN_IMAGE.fullmatch(item.name)) is None:
            continue
        release, flavour = image.groups()
        meta = subject.first(f"linux-image-{flavour}")
        if meta is None:
            yield fault(
                item, f"{item} without its metapackage linux-image-{flavour}: a newer one brings another kernel",
                f"ask for linux-image-{flavour} {item.version}",
            )  # fmt: skip
        elif _differ(meta.version, item.version):
            yield fault(meta, f"{meta} brings another release than {item}", f"ask for {meta.name} {item.version}")
        headers = f"linux-headers-{release}-{flavour}"
        if "dkms" in subject.packages and headers not in subject.packages:
            yield fault(item, f"{item} without {headers}, from which DKMS builds", f"ask for {headers}")


def _ubuntu(subject: Subject) -> Iterator[Finding]:
    found = [(item, said) for item in subject.packages.values() if (said := kernel(item.name)) is not None]
    machine = subject.machine
    if machine is not None:  # older kernels stay installed: judged is the one that runs
        found = [(item, said) for item, said in found if said.meta or machine.kernel.startswith(f"{said.abi}-")]
    images = [(item, said) for item, said in found if said.part == "image" and not said.meta]
    if not images:
        for item, said in found:
            if not said.meta and said.part != "headers":  # headers alone are a build host's
                yield fault(item, f"{item} without a kernel image of {said.abi}", f"ask for linux-image-{said.abi}-…")
        return
    image, chosen = images[0]
    yield from _one_release(found, image, chosen)
    for part in PARTS[1:]:
        name = f"linux-{part}-{chosen.abi}-{chosen.flavour}"
        if name not in subject.packages:
            yield fault(image, f"{image} without {name}", f"ask for {name} in the layer kernel, at the same version")
    for meta in (f"linux-image-{chosen.flavour}", f"linux-headers-{chosen.flavour}"):
        if not any(item.name == meta or item.name.startswith(f"{meta}-hwe-") for item, said in found if said.meta):
            yield fault(
                image, f"{image} without its metapackage {meta}: a newer one brings another kernel",
                f"ask for {meta} at the version of {image.name}",
            )  # fmt: skip


def _one_release(found: list[tuple[Item, Kernel]], image: Item, chosen: Kernel) -> Iterator[Finding]:
    for item, said in found:
        if said.meta:
            # A metapackage's version begins with the release that it brings: 6.8.0-138.138.
            if not f"{item.version}.".startswith(f"{chosen.abi}."):
                yield fault(
                    item, f"{item} brings another release than {image}",
                    f"ask for {item.name} at the version of {image.name}",
                )  # fmt: skip
        elif said.abi != chosen.abi:
            yield fault(item, f"{item} is of another release than {image}", f"ask for the one of {chosen.abi}")
        elif _differ(item.version, image.version):
            yield fault(item, f"{item} is not of the version of {image}", f"ask for {image.version}")


def _differ(version: str, other: str) -> bool:
    """Full versions are compared whole; an upstream version, 6.8.0, means any revision."""
    if ("-" in version) == ("-" in other):
        return compare(version, other) != 0
    return version.partition("-")[0] != other.partition("-")[0]


RULE = Rule(
    id="KERNEL-SET",
    title="kernel image, modules, extra modules, headers and metapackages are one release",
    layers=(Layer.KERNEL, Layer.FABRIC),
    source="cluster-toolkit#4454, #5289, ansible-slurm-appliance#994; gpu-operator#2781 (linux-modules-extra missing);"
    " apt: a hold on the image alone does not hold linux-image-generic",
    check=_check,
)
