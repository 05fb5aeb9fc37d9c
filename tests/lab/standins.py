"""The lab's stand-in packages: a table, and the package trees that it gives.

Named and versioned like NVIDIA's own, so that every rule about names and versions meets the real thing: up to 575 the
Fabric Manager has the branch in its name, from 580 on it has not; the Debian revision is not constant; newer versions
than the wanted one lie beside it. What is in them is a stand-in and says so wherever it shows.
"""

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
    """One version of one package. `part` names its contents: driver, utils or fabric."""

    name: str
    version: str
    part: str
    suites: tuple[str, ...]
    depends: str = ""
    conflicts: str = ""  # replaced as well: both ship the same paths
    provides: str = ""

    @property
    def upstream(self) -> str:
        return self.version.rpartition("-")[0]


def _generation(
    branch: str, driver_version: str, fabric_version: str, suites: tuple[str, ...], *, suffix: str, fabric_suffix: str
) -> list[StandIn]:
    """Driver, tools and Fabric Manager of one release. The unsuffixed names of 590 and later have no branch."""
    return [
        StandIn(
            f"nvidia-driver{suffix}-open", driver_version, "driver", suites,
            depends=f"nvidia-utils{suffix} (= {driver_version})",
            conflicts="nvidia-driver-binary", provides="nvidia-driver-binary",
        ),
        StandIn(
            f"nvidia-utils{suffix}", driver_version, "utils", suites,
            conflicts="nvidia-smi-binary", provides="nvidia-smi-binary",
        ),
        StandIn(
            f"nvidia-fabricmanager{fabric_suffix}", fabric_version, "fabric", suites,
            conflicts="nvidia-fabricmanager-binary",
            # From 580 on the old suffixed name is virtual: it can be depended on, and not be installed by version.
            provides="nvidia-fabricmanager-binary" + ("" if fabric_suffix else f", nvidia-fabricmanager-{branch}"),
        ),
    ]  # fmt: skip


# Suite a is what the archive held when environment A was made; suite b is the same archive later.
TABLE: tuple[StandIn, ...] = (
    *_generation("570", "570.133.20-0ubuntu1", "570.133.20-1", ("a", "b"), suffix="-570", fabric_suffix="-570"),
    *_generation("570", "570.172.08-0ubuntu1", "570.172.08-1", ("a", "b"), suffix="-570", fabric_suffix="-570"),
    *_generation("580", "580.105.08-0ubuntu1", "580.105.08-1", ("b",), suffix="-580", fabric_suffix=""),
    *_generation("580", "580.126.20-1ubuntu1", "580.126.20-1", ("b",), suffix="-580", fabric_suffix=""),
    *_generation("590", "590.48.01-1ubuntu1", "590.48.01-1", ("b",), suffix="", fabric_suffix=""),
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


def scripts(package: StandIn) -> dict[str, str]:
    """The maintainer scripts of a package, by name."""
    begin = "#!/bin/sh\nset -e\n"
    if package.part == "driver":
        # postinst only when configuring: an abort-* call repairs, and must be able to.
        configuring = '[ "$1" = configure ] || exit 0\n'
        return {
            "preinst": begin + _slow(package, "slow-package") + _failing(package, "bad-package"),
            "postinst": begin + configuring + _failing(package, "half-configured"),
        }
    if package.part == "fabric":
        unit, booted = "nvidia-fabricmanager.service", "[ -d /run/systemd/system ] || exit 0\n"
        removing = '[ "$1" = remove ] || exit 0\n'
        return {
            # Like NVIDIA's, neither enabled nor started by installing it: that is the role's work.
            "postinst": f"{begin}{booted}systemctl daemon-reload\nsystemctl try-restart {unit}\n",
            "prerm": f"{begin}{removing}{booted}systemctl --quiet disable --now {unit}\n",
            "postrm": f"{begin}{booted}systemctl daemon-reload\n",
        }
    return {}


# part -> files of PARTS and where they go, with their mode
CONTENTS: dict[str, tuple[tuple[str, str, int], ...]] = {
    "driver": (),
    "utils": (("nvidia-smi", "usr/bin/nvidia-smi", 0o755),),
    "fabric": (
        ("nv-fabricmanager", "usr/bin/nv-fabricmanager", 0o755),
        ("nvidia-fabricmanager.service", "usr/lib/systemd/system/nvidia-fabricmanager.service", 0o644),
        ("fabricmanager.cfg", "usr/share/nvidia/nvswitch/fabricmanager.cfg", 0o644),
    ),
}


def build(package: StandIn, architecture: str, work: Path) -> Path:
    """Build one package; its file."""
    tree = work / f"{package.name}_{package.version}"
    document = tree / f"usr/share/doc/{package.name}/LAB-STAND-IN"
    files = {
        "DEBIAN/control": (control(package, architecture), 0o644),
        **{f"DEBIAN/{name}": (text, 0o755) for name, text in scripts(package).items()},
        str(document.relative_to(tree)): (f"{LABEL}: {package.name} {package.version}; not NVIDIA's.\n", 0o644),
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
    built = work / f"{package.name}_{package.version}_{architecture}.deb"
    run(
        ["dpkg-deb", "--root-owner-group", "-Zgzip", "--build", tree, built],
        env={"PATH": "/usr/sbin:/usr/bin:/sbin:/bin", "SOURCE_DATE_EPOCH": str(EPOCH)},
    )
    shutil.rmtree(tree)
    return built
