"""What the lab has of the scheduler layer that no registry has: Pyxis and Enroot as stand-ins with the real names.

The plug-in is built against the very Slurm that the hosts get, in a layer above the node tree; and once more saying
that it was built for another one, so that a mismatch can be produced on purpose.
"""

import os
import shutil
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path

from bedplate.process import run
from lab.debs import Deb
from lab.places import Places
from lab.standins import EPOCH, LABEL, PARTS
from lab.steps import Steps
from lab.trees import architecture, key_of, node_tree_path, on_a_layer

EDITION = 1
COMPILER = ("gcc", "libc6-dev", "libslurm-dev")
OTHER_SLURM = 0x190500  # 25.05.0
PYXIS, PYXIS_FOR_OTHER = "0.24.0-1", "0.24.0-2+slurm25.05"
ENROOT = "4.1.2-1"
LATER = "+lab1"  # what a later revision of Slurm has at its end
PLUGIN = "usr/lib/x86_64-linux-gnu/slurm/spank_pyxis.so"  # where NVIDIA's package has it
PLUGIN_ENVIRONMENT = {"PATH": "/usr/sbin:/usr/bin:/sbin:/bin", "SOURCE_DATE_EPOCH": str(EPOCH)}


PEOPLE = {"alice": 2000, "bob": 2001}  # who submits jobs: on every host, as a directory service would have it


def people(root: Path) -> None:
    """Ordinary users, in the root of a host before it boots."""
    for name, uid in PEOPLE.items():
        for file, line in (
            ("passwd", f"{name}:x:{uid}:{uid}::/home/{name}:/bin/bash"), ("group", f"{name}:x:{uid}:"),
            ("shadow", f"{name}:!:20000:0:99999:7:::"),
        ):  # fmt: skip
            with (root / "etc" / file).open("a") as handle:
                handle.write(line + "\n")
        home = root / "home" / name
        home.mkdir(parents=True, exist_ok=True)
        os.chown(home, uid, uid)


def plugins_path(places: Places) -> Path:
    source = (PARTS / "spank.c").read_text()
    return places.cache / f"spank-{key_of(EDITION, node_tree_path(places).name, COMPILER, source, OTHER_SLURM)}"


def plugins(places: Places, steps: Steps) -> Path:
    """A directory with fitting.so and other.so, from the cache where it is there; needs the node tree."""
    target = plugins_path(places)
    if not target.is_dir():
        with steps.step("stand-in for Pyxis: built against the hosts' Slurm", expected="about 30 s, once"):
            part = Path(tempfile.mkdtemp(prefix=f"{target.name}.part-", dir=places.cache))
            _compile(places, part)
            (part / "out").rename(target)
            shutil.rmtree(part)
    return target


def _compile(places: Places, work: Path) -> None:
    compile_ = "gcc -O2 -Wall -Wextra -Werror -Wno-format-truncation -shared -fPIC"
    script = f"""
apt-get -qq -y $options install {" ".join(COMPILER)}
{compile_} -o /run/build/out/fitting.so /run/build/spank.c
{compile_} -DBUILT_FOR={OTHER_SLURM:#x} -o /run/build/out/other.so /run/build/spank.c
"""
    on_a_layer(places, work, script, {"spank.c": (PARTS / "spank.c").read_text()})


def debs(built: Path, work: Path) -> dict[str, Path]:
    """The packages of the scheduler layer that are stand-ins: name and version -> file, made in a directory."""
    made = {}
    for name, version, depends, files in _packages(built):
        made[f"{name}={version}"] = _deb(work, name, version, depends, files)
    return made


def later_slurm(packages: Sequence[Deb], work: Path) -> list[Path]:
    """Debian's Slurm once more as a later revision of itself: what an upgrade of the controllers is tried with."""
    made = []
    slurm = [package for package in packages if package.version == _slurm_version(packages)]
    for package in slurm:
        tree = Path(tempfile.mkdtemp(dir=work))
        run(["dpkg-deb", "--raw-extract", package.path, tree])
        control = tree / "DEBIAN/control"
        # Its own version, and the equal one of the packages that it needs.
        control.write_text(control.read_text().replace(package.version, package.version + LATER))
        built = work / f"{package.name}_{package.version}{LATER}_{architecture()}.deb"
        run(["dpkg-deb", "--root-owner-group", "-Zgzip", "--build", tree, built], env=PLUGIN_ENVIRONMENT)
        shutil.rmtree(tree)
        made.append(built)
    return made


def _slurm_version(packages: Sequence[Deb]) -> str:
    return next(package.version for package in packages if package.name == "slurmctld")


def _packages(built: Path) -> list[tuple[str, str, str, Mapping[str, tuple[bytes, int]]]]:
    enroot = (PARTS / "enroot").read_bytes()
    conf = b"# LAB STAND-IN for enroot.conf: what the package brings\n#ENROOT_LIBRARY_PATH /usr/lib/enroot\n"
    share = b"# LAB STAND-IN: as nvslurm-plugin-pyxis has it\nrequired /" + PLUGIN.encode() + b"\n"

    def pyxis(file: str) -> Mapping[str, tuple[bytes, int]]:
        return {PLUGIN: ((built / file).read_bytes(), 0o644), "usr/share/pyxis/pyxis.conf": (share, 0o644)}

    return [
        ("nvslurm-plugin-pyxis", PYXIS, "enroot (>= 3.1.0), slurmd | slurm-client", pyxis("fitting.so")),
        ("nvslurm-plugin-pyxis", PYXIS_FOR_OTHER, "enroot (>= 3.1.0), slurmd | slurm-client", pyxis("other.so")),
        ("enroot", ENROOT, "squashfs-tools", {
            "usr/bin/enroot": (enroot, 0o755), "etc/enroot/enroot.conf": (conf, 0o644),
        }),
        ("enroot+caps", ENROOT, f"enroot (= {ENROOT})", {}),
    ]  # fmt: skip


def _deb(work: Path, name: str, version: str, depends: str, files: Mapping[str, tuple[bytes, int]]) -> Path:
    tree = Path(tempfile.mkdtemp(dir=work))
    control = (
        f"Package: {name}\nVersion: {version}\nArchitecture: {architecture()}\nSection: admin\nPriority: optional\n"
        f"Maintainer: Bedplate lab <lab@lab.invalid>\nDepends: {depends}\n"
        f"Description: {LABEL} for {name}\n Made by the Bedplate lab; no NVIDIA software.\n"
    )
    conffiles = "".join(f"/{place}\n" for place in files if place.startswith("etc/"))
    said = f"{LABEL}: {name} {version}; not NVIDIA's.\n"
    everything = {
        "DEBIAN/control": (control.encode(), 0o644),
        **({"DEBIAN/conffiles": (conffiles.encode(), 0o644)} if conffiles else {}),
        f"usr/share/doc/{name}/LAB-STAND-IN": (said.encode(), 0o644),
        **files,
    }
    for place, (data, mode) in everything.items():
        path = tree / place
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(data)
        path.chmod(mode)
    for directory in [tree, *(path for path in tree.rglob("*") if path.is_dir())]:
        directory.chmod(0o755)
    built = work / f"{name}_{version}_{architecture()}.deb"
    run(["dpkg-deb", "--root-owner-group", "-Zgzip", "--build", tree, built], env=PLUGIN_ENVIRONMENT)
    shutil.rmtree(tree)
    return built
