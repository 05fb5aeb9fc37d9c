"""What the names of Debian packages say: NVIDIA's families, kernels, Slurm's components."""

import functools
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from fnmatch import fnmatchcase

from bedplate.model.versions import upstream

NAMES = 2**15  # kept: thousands of packages, the same ones on every node
UNSUFFIXED_FABRIC = 580  # from this branch on Fabric Manager and its libraries have no branch in their name
UNSUFFIXED_DRIVER = 590  # and from this one the driver's packages (NVIDIA driver installation guide, renamed packages)

DRIVER, FABRIC = "driver", "fabric"

_DRIVER = (
    "nvidia-driver|nvidia-open|nvidia-dkms|nvidia-kernel-source|nvidia-kernel-common|nvidia-kernel-open-dkms|"
    "nvidia-headless-no-dkms|nvidia-headless|nvidia-firmware|nvidia-utils|nvidia-compute-utils|nvidia-modprobe|"
    "nvidia-persistenced|cuda-drivers|libnvidia-(?:compute|cfg1|common|decode|encode|extra|fbc1|gl|gpucomp)|"
    "xserver-xorg-video-nvidia"
)
_FABRIC = "nvidia-fabricmanager|cuda-drivers-fabricmanager|libnvidia-nscq|libnvsdm|nvidia-imex|nvlink5"
_NVIDIA = re.compile(
    rf"(?P<stem>(?P<driver>{_DRIVER})|(?P<fabric>{_FABRIC}))"
    r"(?:-(?P<branch>[0-9]{3}))?(?P<server>-server)?(?P<open>-open)?(?:-[0-9]{3}\.[0-9.]+)?"
)
_NO_BRANCH = frozenset(
    {"nvidia-persistenced", "nvidia-modprobe", "cuda-drivers", "nvidia-open", "nvidia-kernel-open-dkms"}
)
"""Packages that have names without a branch in every branch, too."""
_UBUNTU_FABRIC = frozenset({"nvidia-fabricmanager", "libnvidia-nscq", "nvidia-imex"})
"""What of the fabric Ubuntu's archive has as well, of its -server driver, and with a branch in every name."""
_PREBUILT = re.compile(r"linux-modules-nvidia-(?P<branch>[0-9]{3})(?P<server>-server)?(?P<open>-open)?-.+")


@dataclass(frozen=True)
class Nvidia:
    """A package whose version is that of NVIDIA's driver: nvidia-dkms-580-open, libnvsdm."""

    stem: str
    family: str
    branch: int | None
    server: bool
    open: bool

    @property
    def branchless(self) -> bool:
        """Whether a name without the branch exists in every branch."""
        return self.stem in _NO_BRANCH

    @property
    def ubuntu(self) -> bool:
        """Whether Ubuntu's archive alone has a package of this name: one of its -server driver."""
        suffixed = self.branch is not None and self.branch >= UNSUFFIXED_FABRIC
        return self.server or (suffixed and self.stem in _UBUNTU_FABRIC)

    def named(self, branch: int, *, ubuntu: bool = False) -> str:
        """The name of this package in a branch, in NVIDIA's own repository, or beside Ubuntu's -server driver."""
        if ubuntu and self.stem in _UBUNTU_FABRIC and self.branch is not None:
            return f"{self.stem}-{branch}"
        first = UNSUFFIXED_FABRIC if self.family == FABRIC else UNSUFFIXED_DRIVER
        if self.stem == "nvlink5":
            first = UNSUFFIXED_DRIVER
        suffix = "" if branch >= first or (self.branchless and self.branch is None) else f"-{branch}"
        return f"{self.stem}{suffix}{'-open' if self.open else ''}"


@functools.lru_cache(NAMES)
def nvidia(name: str) -> Nvidia | None:
    """What a name says, if it is of a package that moves with the driver."""
    found = _NVIDIA.fullmatch(name)
    if found is None:
        return None
    branch = int(found["branch"]) if found["branch"] else None
    family = FABRIC if found["fabric"] else DRIVER
    return Nvidia(found["stem"], family, branch, bool(found["server"]), bool(found["open"]))


@functools.lru_cache(NAMES)
def prebuilt(name: str) -> Nvidia | None:
    """What a name says of Canonical's signed modules; their version is the kernel's, not the driver's."""
    found = _PREBUILT.fullmatch(name)
    if found is None:
        return None
    return Nvidia("linux-modules-nvidia", DRIVER, int(found["branch"]), bool(found["server"]), bool(found["open"]))


# Which of them stands for the driver: first what holds or brings the kernel modules, since Fabric Manager compares
# itself with the module that is loaded.
HEADS = (
    "nvidia-dkms", "nvidia-kernel-open-dkms", "nvidia-kernel-source", "nvidia-driver", "nvidia-open", "cuda-drivers",
    "nvidia-headless", "libnvidia-compute", "nvidia-utils",
)  # fmt: skip

_KERNEL = re.compile(
    r"linux-(?P<part>image-unsigned|image|modules-extra|modules|headers)-"
    r"(?P<release>(?P<abi>[0-9]+\.[0-9]+\.[0-9]+-[0-9]+)-(?P<flavour>[a-z][a-z0-9-]*))"
)
_KERNEL_HEADERS = re.compile(r"linux-headers-(?P<abi>[0-9]+\.[0-9]+\.[0-9]+-[0-9]+)")
_KERNEL_META = re.compile(
    r"linux-(?:(?P<part>image|headers|modules-extra)-)?(?P<flavour>generic|lowlatency|virtual)(?:-hwe-[0-9.]+)?"
)


@dataclass(frozen=True)
class Kernel:
    """A package of Ubuntu's kernel.

    part: image, modules, modules-extra, headers; abi: 6.8.0-138; flavour: generic; a metapackage has no abi of its own.
    """

    part: str
    abi: str | None
    flavour: str | None

    @property
    def meta(self) -> bool:
        return self.abi is None


@functools.lru_cache(NAMES)
def kernel(name: str) -> Kernel | None:
    """What a name says, if it is of Ubuntu's kernel."""
    if found := _KERNEL.fullmatch(name):
        return Kernel(found["part"].removesuffix("-unsigned"), found["abi"], found["flavour"])
    if found := _KERNEL_HEADERS.fullmatch(name):
        return Kernel("headers", found["abi"], None)
    if found := _KERNEL_META.fullmatch(name):
        return Kernel(found["part"] or "image and headers", None, found["flavour"])
    return None


_IMAGE = re.compile(r"linux-image-(?:unsigned-)?(\d.*?)(?:-unsigned)?")  # Debian has -unsigned behind


def kernel_release(name: str) -> str | None:
    """What `uname -r` says under the kernel of an image package; None for metapackages and all else."""
    found = _IMAGE.fullmatch(name) if name.startswith("linux-image-") else None
    return found[1] if found else None


def kernel_releases(names: Iterable[str]) -> set[str]:
    """The releases of the kernel images among packages."""
    return {release for name in names if (release := kernel_release(name)) is not None}


# The packages whose version is that of the loaded driver, the surest first.
_LOADED = ("nvidia-dkms-*", "nvidia-kernel-*", "nvidia-driver-*", "nvidia-open*", "libnvidia-compute*")
VERSION_NUMBERS = re.compile(r"\d+\.\d+(?:\.\d+)?")  # 580.178.04


def loaded_driver(packages: Mapping[str, str]) -> tuple[str, str] | None:
    """The package whose version the loaded driver has, and that version without epoch and revision.

    packages: name -> Debian version.
    """
    for pattern in _LOADED:
        for name, version in sorted(packages.items()):
            if fnmatchcase(name, pattern) and VERSION_NUMBERS.fullmatch(upstream(version)):
                return name, upstream(version)
    return None


_SLURM = re.compile(
    r"slurm-smd(-.+)?|slurm-wlm(-.+)?|slurm-client(-.+)?|slurm(d|ctld|dbd|restd)|sackd|sview|libslurm[0-9]+(t64)?|"
    r"libslurm-(dev|perl)|libpam-slurm(-adopt)?|libnss-slurm|libpmi(0|2-0)"
)


@functools.lru_cache(NAMES)
def slurm(name: str) -> bool:
    """Whether a package is built from Slurm's source: SchedMD's own (slurm-smd-*) or Debian's."""
    return _SLURM.fullmatch(name) is not None


def slurm_daemon(name: str) -> str | None:
    """slurmd, slurmctld or slurmdbd, under either name."""
    daemon = name.removeprefix("slurm-smd-")
    return daemon if daemon in ("slurmd", "slurmctld", "slurmdbd") else None


TOOLKIT = (
    "nvidia-container-toolkit", "nvidia-container-toolkit-base", "libnvidia-container-tools", "libnvidia-container1",
)  # fmt: skip
PYXIS = "nvslurm-plugin-pyxis"
SPANK_ABI = "spank_abi"
"""The fact of a lock that says for which Slurm Pyxis was built; with a package's name behind it, that package."""
