"""Real Debian packages for archive and base image: downloaded through a private apt root, with their closure."""

from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

from bedplate.model.faults import BedplateError
from bedplate.process import run
from lab.trees import SUITE, apt_proxy, architecture, mirror

OLD_SUITE = "bookworm"
TWO_VERSIONS = ("numactl", "libnuma1")  # the real package that A and B have in two real versions
# Slurm, and the database of its accounts, as Debian has them.
SLURM = ("slurmctld", "slurmdbd", "slurmd", "slurm-client", "sackd", "munge", "mariadb-server", "squashfs-tools")
HOST = (
    "chrony",
    "rsyslog",
    "docker-registry",
    "aptly",
    "gpg",
    "nginx",
    "dnsmasq-base",
    "python3-libtorrent",
    "xdelta3",
)  # of the host layers, as Debian has them
BASE_IMAGE = ("base-files", "base-passwd", "busybox-static")


@dataclass(frozen=True)
class Deb:
    name: str
    version: str
    path: Path


def download(target: Path) -> None:
    """Fill a directory: new/ (trixie, with all it depends on), old/ (bookworm's two), image/ (the base image's)."""
    roots = {suite: _root(target / "apt" / suite, suite) for suite in (SUITE, OLD_SUITE)}
    _fetch(roots[SUITE], closure(roots[SUITE], (*TWO_VERSIONS, *SLURM, *HOST)), target / "new")
    _fetch(roots[OLD_SUITE], TWO_VERSIONS, target / "old")
    _fetch(roots[SUITE], BASE_IMAGE, target / "image")


def download_kernels(target: Path, meta: str) -> None:
    """Fill a directory: new/ (trixie's kernel with all it depends on), old/ (bookworm's kernel packages alone)."""
    roots = {suite: _root(target / "apt" / suite, suite) for suite in (SUITE, OLD_SUITE)}
    _fetch(roots[SUITE], closure(roots[SUITE], [meta]), target / "new")
    old = [name for name in closure(roots[OLD_SUITE], [meta]) if name.startswith("linux-image-")]
    _fetch(roots[OLD_SUITE], old, target / "old")


def debs(directory: Path) -> list[Deb]:
    """The packages of a directory, by name."""
    found = []
    for path in sorted(directory.glob("*.deb")):
        name, version = run(["dpkg-deb", "--show", "--showformat", "${Package}\t${Version}", path]).out.split("\t")
        found.append(Deb(name, version, path))
    return found


def _root(root: Path, suite: str) -> Path:
    """An apt root with one source and nothing installed; its configuration file."""
    for name in ("etc/apt/preferences.d", "etc/apt/apt.conf.d", "state/lists/partial", "cache/archives/partial", "log"):
        (root / name).mkdir(parents=True)
    (root / "status").touch()
    (root / "etc/apt/sources.list").write_text(
        f"deb [signed-by=/usr/share/keyrings/debian-archive-keyring.gpg] {mirror()} {suite} main\n"
    )
    configuration = root / "apt.conf"
    configuration.write_text("\n".join([
        f'Dir "{root}"; Dir::Etc "{root}/etc/apt"; Dir::State "{root}/state"; Dir::State::status "{root}/status";',
        f'Dir::Cache "{root}/cache"; Dir::Log "{root}/log";',
        f'APT::Architecture "{architecture()}"; APT::Architectures "";',
        'APT::Sandbox::User "root"; Acquire::Languages "none"; APT::Install-Recommends "false";',
        # The machine's hooks, desktop indexes among them, have no business in a private root.
        "#clear DPkg::Post-Invoke; #clear APT::Update::Post-Invoke; #clear APT::Update::Post-Invoke-Success;",
        *apt_proxy(), "",
    ]))  # fmt: skip
    _apt(configuration, ["apt-get", "-qq", "update"])
    return configuration


def _apt(configuration: Path, argv: list[str], cwd: Path | None = None) -> str:
    environment = {"PATH": "/usr/sbin:/usr/bin:/sbin:/bin", "LC_ALL": "C.UTF-8", "APT_CONFIG": str(configuration)}
    return run(argv, env=environment, cwd=cwd, timeout_s=600).out


def closure(configuration: Path, names: Iterable[str]) -> list[str]:
    """Everything that has to be installed for these packages where nothing is: what apt itself decides."""
    planned = _apt(configuration, ["apt-get", "-s", "-qq", "install", *names])
    found = [line.split()[1] for line in planned.splitlines() if line.startswith("Inst ")]
    if not set(names) <= set(found):
        raise BedplateError(
            f"apt would not install {', '.join(names)} from {mirror()}: it planned {found or 'nothing'}"
        )
    return found


def _fetch(configuration: Path, names: Iterable[str], target: Path) -> None:
    target.mkdir(parents=True)
    _apt(configuration, ["apt-get", "-qq", "download", *names], cwd=target)
