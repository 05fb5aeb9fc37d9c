"""The lab's signed apt archive: suite `a` (when environment A was made) and suite `b` (later).

Several versions of a package lie side by side. Made with aptly from the stand-in table and real Debian packages with
all that they depend on, so that apt resolves from one suite alone. Cached, its key with it; served over http in the
lab's namespace alone.
"""

import json
import os
import shutil
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from bedplate.process import run
from lab import debs, slurmparts, standins
from lab.places import Places
from lab.steps import Steps
from lab.trees import architecture, key_of, node_tree_path

EDITION = 1
USER_ID = "Bedplate lab archive <lab@lab.invalid>"


@dataclass(frozen=True)
class Archive:
    public: Path  # what is served
    key: str  # armored
    real: dict[str, dict[str, str]]  # suite -> real package that differs -> its version there
    host: dict[str, str]  # packages of the host layers that are real -> version
    slurm: dict[str, str]  # packages of the scheduler layer that are real -> version


def downloads_path(places: Places) -> Path:
    # Named after the node tree and fetched with it: a package that the tree has is never older in the archive.
    lists = (debs.TWO_VERSIONS, debs.BASE_IMAGE, debs.SLURM, debs.HOST)
    return places.cache / f"debs-{key_of(EDITION, node_tree_path(places).name, *lists)}"


def downloads(places: Places, steps: Steps) -> Path:
    """The real packages, from the cache where they are there."""
    places.cache.mkdir(parents=True, exist_ok=True)
    target = downloads_path(places)
    if not target.is_dir():
        with steps.step("archive: download real Debian packages", expected="about 25 s, once"):
            part = Path(tempfile.mkdtemp(prefix=f"{target.name}.part-", dir=places.cache))
            debs.download(part)
            shutil.rmtree(part / "apt")
            part.rename(target)
    return target


def archive_path(places: Places) -> Path:
    parts = [(path.name, path.read_text()) for path in sorted(standins.PARTS.iterdir()) if path.is_file()]
    table = [vars(package) for package in standins.TABLE]
    sources = [Path(file).read_text() for file in (standins.__file__, slurmparts.__file__)]
    plugins = slurmparts.plugins_path(places).name
    return places.cache / f"archive-{key_of(EDITION, downloads_path(places).name, table, parts, sources, plugins)}"


def archive(places: Places, steps: Steps) -> Archive:
    """The archive, from the cache where it is there; needs the node tree."""
    real, target = downloads(places, steps), archive_path(places)
    if not target.is_dir():
        plugins = slurmparts.plugins(places, steps)
        with steps.step("archive: build stand-ins, sign and publish suites a and b", expected="about 5 s, once"):
            part = Path(tempfile.mkdtemp(prefix=f"{target.name}.part-", dir=places.cache))
            _publish(part, real, plugins)
            part.rename(target)
    old, new = debs.debs(real / "old"), debs.debs(real / "new")
    return Archive(
        public=target / "aptly/public",
        key=(target / "archive.asc").read_text(),
        real={"a": _versions(old), "b": _versions(new)},
        host={package.name: package.version for package in new if package.name in debs.HOST},
        slurm={package.name: package.version for package in new if package.name in debs.SLURM},
    )


def _versions(packages: list[debs.Deb]) -> dict[str, str]:
    return {package.name: package.version for package in packages if package.name in debs.TWO_VERSIONS}


def _publish(work: Path, downloads: Path, plugins: Path) -> None:
    arch = architecture()
    new, old = debs.debs(downloads / "new"), debs.debs(downloads / "old")
    stand_ins = work / "debs"
    stand_ins.mkdir()
    built = {package: standins.build(package, arch, stand_ins) for package in standins.TABLE}
    scheduler = list(slurmparts.debs(plugins, stand_ins).values())
    closure = [package.path for package in new if package.name not in debs.TWO_VERSIONS]
    members = {
        "a": [*closure, *(package.path for package in old)],
        "b": [*(package.path for package in [*new, *old]), *slurmparts.later_slurm(new, stand_ins)],
    }
    publish(
        work,
        {
            suite: [*real, *scheduler, *(path for package, path in built.items() if suite in package.suites)]
            for suite, real in members.items()
        },
    )
    shutil.rmtree(stand_ins)


def publish(work: Path, suites: Mapping[str, Sequence[Path]]) -> None:
    """Make WORK/aptly/public, signed, with these suites, and the public key WORK/archive.asc."""
    home = work / "gnupg"
    home.mkdir(mode=0o700)
    environment = {**os.environ, "GNUPGHOME": str(home), "LC_ALL": "C.UTF-8"}
    try:
        run(
            ["gpg", "--batch", "--quiet", "--passphrase", "", "--quick-gen-key", USER_ID,
             "ed25519", "sign", "never"], env=environment,
        )  # fmt: skip
        listing = run(["gpg", "--list-keys", "--with-colons"], env=environment).out
        key = next(line.split(":")[9] for line in listing.splitlines() if line.startswith("fpr:"))
        (work / "archive.asc").write_text(run(["gpg", "--armor", "--export", key], env=environment).out)
        configuration = work / "aptly.conf"
        configuration.write_text(
            json.dumps(
                {
                    "rootDir": str(work / "aptly"),
                    "architectures": [architecture()],
                    "gpgProvider": "gpg",
                    "skipLegacyPool": True,
                }
            )
        )
        aptly = ["aptly", f"-config={configuration}"]
        for suite, files in suites.items():
            run([*aptly, "repo", "create", f"-distribution={suite}", "-component=main", suite], env=environment)
            run([*aptly, "repo", "add", suite, *files], env=environment)
            run([*aptly, "snapshot", "create", f"{suite}-1", "from", "repo", suite], env=environment)
            run(
                [*aptly, "publish", "snapshot", "-batch", f"-gpg-key={key}", f"-distribution={suite}",
                 f"-suite={suite}", "-origin=Bedplate lab", "-label=Bedplate lab", f"{suite}-1"], env=environment,
            )  # fmt: skip
    finally:
        # gpg leaves an agent behind; one that serves a directory of ours is ours to end.
        run(["gpgconf", "--kill", "all"], check=False, env=environment)
    # aptly's configuration names the directory that is about to be renamed.
    configuration.unlink()
