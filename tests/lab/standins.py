"""The lab's stand-in packages: a table, and the package trees that it gives.

Named and versioned like NVIDIA's own, so that every rule about names and versions meets the real thing: up to 575 the
Fabric Manager has the branch in its name, from 580 on it has not; the Debian revision is not constant; newer versions
than the wanted one lie beside it. Metapackages ask for ">=", as NVIDIA's do. What is in them is a stand-in and says
so wherever it shows.
"""

import hashlib
import shutil
from dataclasses import dataclass
from pathlib import Path

from bedplate.process import run

LABEL = "LAB STAND-IN"
FAULTS_ON_NODE = "/var/lib/bedplate-lab-faults"  # a file here makes a stand-in's maintainer script fail (`lab break`)
EPOCH = 1700000000  # file times in the packages: the same table gives the same bytes
PARTS = Path(__file__).with_name("standin")


@dataclass(frozen=True)
class StandIn:
    """One version of one package. `part` names its contents."""

    name: str
    version: str
    part: str
    suites: tuple[str, ...]
    depends: str = ""
    conflicts: str = ""  # replaced as well: both ship the same paths
    provides: str = ""

    @property
    def upstream(self) -> str:
        return (self.version.rpartition("-")[0] or self.version).rpartition(":")[2]


def _alone(what: str, *more: str) -> dict[str, str]:
    """One package of a kind at a time, under whichever name."""
    return {"conflicts": what, "provides": ", ".join((what, *more))}


def _generation(
    branch: str, driver_version: str, fabric_version: str, suites: tuple[str, ...], *, suffix: str, fabric_suffix: str
) -> list[StandIn]:
    """Driver, tools and Fabric Manager of one release. The unsuffixed names of 590 and later have no branch."""
    exact, split = f"(= {driver_version})", f"nvidia-compute-utils{suffix}"

    def driver(name: str, part: str, depends: str = "", **more: str) -> StandIn:
        return StandIn(name, driver_version, part, suites, depends, **more)

    def fabric(name: str, part: str, **more: str) -> StandIn:
        return StandIn(f"{name}{fabric_suffix}", fabric_version, part, suites, **more)

    parts = (f"nvidia-dkms{suffix}-open", f"nvidia-utils{suffix}", split, f"libnvidia-compute{suffix}")
    # From 580 on the old suffixed name is virtual: it can be depended on, and not be installed by version.
    virtual = () if fabric_suffix else (f"nvidia-fabricmanager-{branch}",)
    return [
        driver(
            f"nvidia-driver{suffix}-open", "driver", ", ".join(f"{name} {exact}" for name in parts),
            **_alone("nvidia-driver-binary"),
        ),
        driver(f"nvidia-dkms{suffix}-open", "dkms", **_alone("nvidia-kernel-module")),
        driver(f"nvidia-utils{suffix}", "utils", f"libnvidia-compute{suffix} {exact}", **_alone("nvidia-smi-binary")),
        driver(split, "nothing", **_alone("nvidia-compute-utils-binary")),
        driver(f"libnvidia-compute{suffix}", "library", **_alone("libnvidia-ml.so.1")),
        driver("nvidia-persistenced", "persistenced"),
        driver("nvidia-modprobe", "modprobe"),
        driver(f"nvidia-open{suffix}", "nothing", f"nvidia-driver{suffix}-open (>= {driver_version})"),
        fabric("nvidia-fabricmanager", "fabric", **_alone("nvidia-fabricmanager-binary", *virtual)),
        fabric("libnvidia-nscq", "nothing", **_alone("libnvidia-nscq-binary")),
        fabric("libnvsdm", "nothing", **_alone("libnvsdm-binary")),
        StandIn(
            "nvlink5" if not suffix else f"nvlink5-{branch}", driver_version, "nothing", suites,
            f"nvidia-fabricmanager{fabric_suffix} (>= {fabric_version}), libnvidia-nscq{fabric_suffix} (>= "
            f"{fabric_version}), libnvsdm{fabric_suffix} (>= {fabric_version}), nvlsm",
        ),
    ]  # fmt: skip


def _toolkit(version: str, suites: tuple[str, ...]) -> list[StandIn]:
    """The four packages of the Container Toolkit; the upper ones ask for ">=", so that versions can be mixed."""
    return [
        StandIn("nvidia-container-toolkit", version, "nothing", suites,
                f"nvidia-container-toolkit-base (= {version}), libnvidia-container-tools (>= {version})"),
        StandIn("nvidia-container-toolkit-base", version, "toolkit", suites),
        StandIn("libnvidia-container-tools", version, "nothing", suites, f"libnvidia-container1 (>= {version})"),
        StandIn("libnvidia-container1", version, "nothing", suites),
    ]  # fmt: skip


def _docker(version: str, containerd: str, suites: tuple[str, ...]) -> list[StandIn]:
    return [
        StandIn("docker-ce", f"5:{version}-1~debian.13~trixie", "docker", suites,
                f"docker-ce-cli (= 5:{version}-1~debian.13~trixie), containerd.io (>= 1.7.27)", "docker.io"),
        StandIn("docker-ce-cli", f"5:{version}-1~debian.13~trixie", "docker-cli", suites),
        StandIn("containerd.io", f"{containerd}-1~debian.13~trixie", "nothing", suites, conflicts="containerd, runc"),
    ]  # fmt: skip


def _dcgm(version: str, cuda: str, suites: tuple[str, ...]) -> list[StandIn]:
    core = "datacenter-gpu-manager-4-core"
    return [
        StandIn(core, version, "dcgm", suites),
        StandIn(f"datacenter-gpu-manager-4-{cuda}", version, "nothing", suites, f"{core} (= {version})"),
    ]


# Suite a is what the archive held when environment A was made; suite b is the same archive later.
BOTH, LATER = ("a", "b"), ("b",)
TABLE: tuple[StandIn, ...] = (
    *_generation("570", "570.133.20-0ubuntu1", "570.133.20-1", BOTH, suffix="-570", fabric_suffix="-570"),
    *_generation("570", "570.172.08-0ubuntu1", "570.172.08-1", BOTH, suffix="-570", fabric_suffix="-570"),
    *_generation("580", "580.105.08-0ubuntu1", "580.105.08-1", LATER, suffix="-580", fabric_suffix=""),
    *_generation("580", "580.126.20-1ubuntu1", "580.126.20-1", LATER, suffix="-580", fabric_suffix=""),
    *_generation("590", "590.48.01-1ubuntu1", "590.48.01-1", LATER, suffix="", fabric_suffix=""),
    StandIn("nvlsm", "2025.06.11-1", "nvlsm", BOTH),
    StandIn("nvlsm", "2025.10.14-1", "nvlsm", LATER),
    StandIn("infiniband-diags", "56.1-1", "ibdiags", BOTH),  # Debian's own brings perl, 50 MB on each host
    *_dcgm("1:4.4.1-1", "cuda12", BOTH),
    *_dcgm("1:4.6.0-1", "cuda13", LATER),
    *_docker("28.5.2", "1.7.29", BOTH),
    *_docker("29.1.3", "2.2.0", LATER),
    *_toolkit("1.18.2-1", BOTH),
    *_toolkit("1.20.0-1", LATER),
    StandIn("doca-ofed", "3.2.3-019000", "nothing", LATER, "mlnx-ofed-kernel-dkms"),
    StandIn("mlnx-ofed-kernel-dkms", "25.10.OFED.25.10.1.7.1.1-1", "ofed", LATER),
    # What a plain installation of Ubuntu has, and no managed node may keep.
    StandIn("unattended-upgrades", "2.12", "nothing", BOTH),
    StandIn("needrestart", "3.8-1", "nothing", BOTH),
)


def control(package: StandIn, architecture: str) -> str:
    """The text of DEBIAN/control."""
    fields = {
        "Package": package.name, "Version": package.version, "Architecture": architecture, "Section": "non-free/misc",
        "Priority": "optional", "Maintainer": "Bedplate lab <lab@lab.invalid>", "Depends": package.depends,
        "Conflicts": package.conflicts, "Replaces": package.conflicts, "Provides": package.provides,
        "Description": f"{LABEL} for {package.name} (no NVIDIA software)\n"
        " Made by the Bedplate lab to stand where NVIDIA's package of this name and version would.",
    }  # fmt: skip
    return "".join(f"{name}: {value}\n" for name, value in fields.items() if value)


def _failing(package: StandIn, fault: str) -> str:
    return f"""\
if [ -e {FAULTS_ON_NODE}/{fault} ]; then
  echo "{package.name} ({LABEL}): failing on purpose, fault {fault} of the lab" >&2
  exit 1
fi
"""


def _slow(package: StandIn, fault: str) -> str:
    """As a module build is; long enough to kill a controller meanwhile."""
    return f"""\
if [ -e {FAULTS_ON_NODE}/{fault} ]; then
  echo "{package.name} ({LABEL}): slow on purpose, fault {fault} of the lab" >&2
  sleep 20
fi
"""


# part -> its units, which its package enables and starts as debhelper's scripts do: policy-rc.d has a say in the second
STARTED: dict[str, tuple[str, ...]] = {
    "persistenced": ("nvidia-persistenced.service",),
    "dcgm": (),  # NVIDIA's starts nothing
    "docker": ("docker.service",),
    "toolkit": ("nvidia-cdi-refresh.path", "nvidia-cdi-refresh.service"),
    "fabric": (),  # neither enabled nor started by installing it: that is the role's work
    "ofed": (),
}


def scripts(package: StandIn) -> dict[str, str]:
    """The maintainer scripts of a package, by name."""
    begin = "#!/bin/sh\nset -e\n"
    if package.part == "driver":
        # postinst only when configuring: an abort-* call repairs, and must be able to.
        configuring = '[ "$1" = configure ] || exit 0\n'
        return {
            "preinst": begin
            + _slow(package, "slow-package")
            + _failing(package, "bad-package")
            + ("" if "a" in package.suites else _failing(package, "bad-upgrade")),
            "postinst": begin + configuring + _failing(package, "half-configured"),
        }
    if package.part in STARTED:
        units = [Path(place).name for _, place, _ in CONTENTS[package.part] if "/systemd/system/" in place]
        booted = "[ -d /run/systemd/system ] || exit 0\n"
        enable = "".join(f"deb-systemd-helper enable {unit} >/dev/null || true\n" for unit in STARTED[package.part])
        start = "".join(f"deb-systemd-invoke start {unit} >/dev/null || true\n" for unit in STARTED[package.part])
        return {
            "postinst": f"{begin}{enable}{booted}systemctl daemon-reload\n{start}",
            "prerm": f'{begin}[ "$1" = remove ] || exit 0\n{booted}systemctl --quiet disable --now {" ".join(units)}\n',
            "postrm": f"{begin}{booted}systemctl daemon-reload\n",
        }
    return {}


UNITS = "usr/lib/systemd/system"
# part -> files of PARTS and where they go, with their mode
CONTENTS: dict[str, tuple[tuple[str, str, int], ...]] = {
    "nothing": (),
    "driver": (),
    "dkms": (),
    "library": (),
    "ofed": (("openibd.service", f"{UNITS}/openibd.service", 0o644),),
    "utils": (("nvidia-smi", "usr/bin/nvidia-smi", 0o755),),
    "persistenced": (
        ("nvidia-persistenced", "usr/bin/nvidia-persistenced", 0o755),
        ("nvidia-persistenced.service", f"{UNITS}/nvidia-persistenced.service", 0o644),
    ),
    "modprobe": (("nvidia-modprobe", "usr/bin/nvidia-modprobe", 0o755),),
    "fabric": (
        ("nv-fabricmanager", "usr/bin/nv-fabricmanager", 0o755),
        ("nvidia-fabricmanager-start.sh", "usr/bin/nvidia-fabricmanager-start.sh", 0o755),
        ("nvidia-fabricmanager.service", f"{UNITS}/nvidia-fabricmanager.service", 0o644),
        ("fabricmanager.cfg", "usr/share/nvidia/nvswitch/fabricmanager.cfg", 0o644),
    ),
    "nvlsm": (
        ("nvlsm", "opt/nvidia/nvlsm/sbin/nvlsm", 0o755),
        ("nvlsm.conf", "usr/share/nvidia/nvlsm/nvlsm.conf", 0o644),
    ),
    "ibdiags": (("ibstat", "usr/sbin/ibstat", 0o755),),
    "dcgm": (
        ("nv-hostengine", "usr/bin/nv-hostengine", 0o755),
        ("nvidia-dcgm.service", f"{UNITS}/nvidia-dcgm.service", 0o644),
    ),
    "docker": (
        ("dockerd", "usr/bin/dockerd", 0o755),
        ("docker.service", f"{UNITS}/docker.service", 0o644),
    ),
    "docker-cli": (("docker", "usr/bin/docker", 0o755),),
    "toolkit": (
        ("nvidia-ctk", "usr/bin/nvidia-ctk", 0o755),
        ("nvidia-cdi-refresh.service", f"{UNITS}/nvidia-cdi-refresh.service", 0o644),
        ("nvidia-cdi-refresh.path", f"{UNITS}/nvidia-cdi-refresh.path", 0o644),
    ),
}
MODULES = {  # part -> kernel modules that its package builds for the running kernel -> what they depend on
    "dkms": {"nvidia": "", "nvidia_modeset": "nvidia", "nvidia_uvm": "nvidia", "nvidia_peermem": "nvidia"},
    "ofed": {"mlx5_core": "", "mlx5_ib": "mlx5_core", "ib_umad": ""},
}


def module_text(name: str, version: str, depends: str) -> str:
    """A kernel module as the stand-in of modprobe knows it."""
    srcversion = hashlib.sha256(f"{name} {version}".encode()).hexdigest()[:23].upper()
    return f"version={version}\nsrcversion={srcversion}\ndepends={depends}\n"


def made(package: StandIn) -> dict[str, str]:
    """Files of a package that come from no part: kernel modules, and the library whose name has the version."""
    folder = "usr/lib/lab-kernel/" + ("updates" if package.part == "ofed" else "modules")
    files = {
        f"{folder}/{name}": module_text(name, package.upstream, depends)
        for name, depends in MODULES.get(package.part, {}).items()
    }
    if package.part == "library":
        files[f"usr/lib/x86_64-linux-gnu/libnvidia-ml.so.{package.upstream}"] = f"{LABEL}: no library\n"
    return files


def build(package: StandIn, architecture: str, work: Path) -> Path:
    """Build one package; its file."""
    tree = work / f"{package.name}_{package.version}"
    document = tree / f"usr/share/doc/{package.name}/LAB-STAND-IN"
    files = {
        "DEBIAN/control": (control(package, architecture), 0o644),
        **{f"DEBIAN/{name}": (text, 0o755) for name, text in scripts(package).items()},
        str(document.relative_to(tree)): (f"{LABEL}: {package.name} {package.version}; not NVIDIA's.\n", 0o644),
        **{place: (text, 0o644) for place, text in made(package).items()},
        **{
            place: ((PARTS / source).read_text().replace("@VERSION@", package.upstream), mode)
            for source, place, mode in CONTENTS[package.part]
        },
    }
    for place, (text, mode) in files.items():
        path = tree / place
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
        path.chmod(mode)
    for directory in [tree, *(path for path in tree.rglob("*") if path.is_dir())]:
        directory.chmod(0o755)
    built = work / f"{package.name}_{package.version.replace(':', '%3a')}_{architecture}.deb"
    run(
        ["dpkg-deb", "--root-owner-group", "-Zgzip", "--build", tree, built],
        env={"PATH": "/usr/sbin:/usr/bin:/sbin:/bin", "SOURCE_DATE_EPOCH": str(EPOCH)},
    )
    shutil.rmtree(tree)
    return built
