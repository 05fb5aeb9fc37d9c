"""The root trees of the hosts: built once from Debian packages, cached under the hash of what they are made of.

Three layers, each the lower of an overlay: the node tree (mmdebstrap), what a controller has besides (installed with
apt on an overlay above it), and the controller's virtual environment (uv.lock, on an overlay above both). A build
runs in a mount and process namespace that ends with us, so a killed one leaves a directory and nothing else.
"""

import fcntl
import hashlib
import json
import os
import shutil
import sys
import tempfile
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from bedplate.model.faults import BedplateError
from bedplate.process import run
from lab.places import CHECKOUT, Places
from lab.steps import Steps

SUITE = "trixie"
MIRROR = "http://deb.debian.org/debian"  # when the machine's own apt names none
KEEP_UNUSED_DAYS = 5
EDITION = 3  # raised when a recipe below changes in a way that its inputs do not show

# Without libpam-systemd: it would start a user manager at every login after a pause, 0.7 s of a core each.
NODE_PACKAGES = (
    "systemd-sysv", "systemd", "dbus", "openssh-server", "python3", "python3-apt", "python3-debian",
    "iproute2", "iputils-ping", "procps", "ca-certificates", "kmod", "curl", "zstd", "squashfs-tools",
    "python3-libtorrent", "xdelta3",
)  # fmt: skip
CONTROLLER_PACKAGES = (
    "skopeo", "buildah", "netavark", "openssh-client", "gpgv", "gpg", "sqlite3", "git", "jq", "less", "openssl",
    "bash-completion", "apt-utils",
)  # fmt: skip
# A host shares the machine's kernel: nothing to load or to mount there; and nothing may take apt's lock by itself.
MASKED = (
    "apt-daily.timer", "apt-daily-upgrade.timer", "e2scrub_reap.service", "modprobe@.service", "dev-hugepages.mount",
    "dev-mqueue.mount", "sys-kernel-debug.mount", "sys-kernel-tracing.mount", "sys-kernel-config.mount",
    "sys-fs-fuse-connections.mount",
)  # fmt: skip
NO_DOCUMENTATION = ("/usr/share/doc/*", "/usr/share/man/*", "/usr/share/locale/*", "/usr/share/info/*")
VENV = Path("/opt/bedplate/venv")
CHECKOUT_INSIDE = Path("/opt/bedplate/checkout")


@dataclass(frozen=True)
class Trees:
    """Overlay lower directories, topmost first."""

    node: tuple[Path, ...]
    controller: tuple[Path, ...]


@cache
def architecture() -> str:
    return run(["dpkg", "--print-architecture"]).out.strip()


@cache
def mirror() -> str:
    """The Debian archive that this machine already uses, so that a local mirror or cache serves the lab as well."""
    if "BEDPLATE_LAB_MIRROR" in os.environ:
        return os.environ["BEDPLATE_LAB_MIRROR"]
    wanted = ["Created-By: Packages", "Origin: Debian", "Label: Debian"]
    uris = run(["apt-get", "indextargets", "--format", "$(REPO_URI)", *wanted], check=False).out.split()
    return uris[0].rstrip("/") if uris else MIRROR


@cache
def apt_proxy() -> list[str]:
    """apt's proxy settings of this machine, as lines of an apt.conf; they hold for the mirror that it uses."""
    dump = run(
        ["apt-config", "dump", "--format", "%F %v%n", "Acquire::http::Proxy", "Acquire::https::Proxy"], check=False
    )
    pairs = [line.split(" ", 1) for line in dump.out.splitlines() if " " in line]
    return [f'{name} "{value}";' for name, value in pairs if value]


def key_of(*parts: object) -> str:
    return hashlib.sha256(json.dumps(parts, sort_keys=True, default=str).encode()).hexdigest()[:12]


def contained(argv: Sequence[str | Path]) -> list[str | Path]:
    """A command line whose processes and mounts all end with this process, however that ends."""
    return ["setpriv", "--pdeathsig", "KILL", "unshare", "--mount", "--pid", "--fork", "--kill-child=KILL", *argv]


def node_tree_path(places: Places) -> Path:
    return places.cache / f"node-{key_of(EDITION, SUITE, NODE_PACKAGES, architecture(), mirror())}"


def controller_layer_path(places: Places) -> Path:
    return places.cache / f"controller-{key_of(EDITION, node_tree_path(places).name, CONTROLLER_PACKAGES)}"


def venv_layer_path(places: Places) -> Path:
    lock = hashlib.sha256((CHECKOUT / "uv.lock").read_bytes()).hexdigest()
    return places.cache / f"venv-{key_of(EDITION, controller_layer_path(places).name, lock)}"


def trees(places: Places, steps: Steps) -> Trees:
    """Every tree that hosts need, from the cache where it is there."""
    node = node_tree(places, steps)
    controller, venv = controller_layer_path(places), venv_layer_path(places)
    if not controller.is_dir():
        with steps.step("controller tree: what a controller has besides", expected="about 30 s, once"):
            _controller_layer(controller, node)
    if not venv.is_dir():
        with steps.step("controller tree: Python environment from uv.lock", expected="about 20 s, once per uv.lock"):
            _venv_layer(venv, controller, node)
    return Trees(node=(node,), controller=(venv, controller, node))


def node_tree(places: Places, steps: Steps) -> Path:
    """The tree that all others stand on."""
    places.cache.mkdir(parents=True, exist_ok=True)
    node = node_tree_path(places)
    if not node.is_dir():
        with steps.step(f"node tree: Debian {SUITE} from {mirror()}", expected="about 30 s, once"):
            _node_tree(node)
    return node


def _node_tree(target: Path) -> None:
    bootstrap(target, NODE_PACKAGES, [f'systemctl --root="$1" mask --quiet {" ".join(MASKED)}'])


def bootstrap(target: Path, packages: Sequence[str], hooks: Sequence[str], *, besides: Sequence[str] = ()) -> None:
    """A root tree of Debian packages, whole or not at all.

    hooks: shell commands, the tree is "$1"; besides: other suites that hooks may install from.
    """
    work = Path(tempfile.mkdtemp(prefix=f"{target.name}.part-", dir=target.parent))
    tree = work / "tree"
    # A tree that a crash leaves half written is thrown away: dpkg need not wait for the disk.
    options = ["--dpkgopt=force-unsafe-io", *(f"--dpkgopt=path-exclude={pattern}" for pattern in NO_DOCUMENTATION)]
    options += [f"--aptopt={line}" for line in (*apt_proxy(), f'APT::Default-Release "{SUITE}";')]
    last = [
        # How the tree was made is no setting of a host: there, packages come with their documents, as on any Debian.
        'rm -f "$1"/etc/dpkg/dpkg.cfg.d/99mmdebstrap "$1"/etc/apt/apt.conf.d/99mmdebstrap',
        # A key in the tree would be every host's key; a source in it would be a way around the lab's archive.
        'rm -f "$1"/etc/ssh/ssh_host_* "$1"/etc/apt/sources.list "$1"/etc/apt/sources.list.d/* "$1"/etc/machine-id',
    ]
    sources = [f"deb {mirror()} {suite} main" for suite in (SUITE, *besides)]
    run(
        contained([
            "mmdebstrap", "--quiet", "--mode=root", "--variant=minbase", f"--include={','.join(packages)}",
            '--aptopt=Acquire::Languages "none"', '--aptopt=APT::Install-Recommends "false"', *options,
            *(f"--customize-hook={hook}" for hook in (*hooks, *last)), SUITE, tree, *sources,
        ]),
        timeout_s=1800,
    )  # fmt: skip
    tree.rename(target)
    shutil.rmtree(work)


# Runs in the namespaces of `contained`: overlay, kernel file systems, then a shell script in the tree.
_ON_AN_OVERLAY = """
set -eu
work=$1 lower=$2 script=$3
mount --make-rprivate /
mkdir -p "$work/up" "$work/overlay" "$work/root"
mount -t overlay overlay -o "lowerdir=$lower,upperdir=$work/up,workdir=$work/overlay" "$work/root"
root=$work/root
mount -t proc proc "$root/proc"
mount --rbind /dev "$root/dev"
mount --rbind /sys "$root/sys"
mount -t tmpfs tmpfs "$root/run"
mount -t tmpfs tmpfs "$root/tmp"
mkdir "$root/run/build"
mount --rbind "$work/given" "$root/run/build"
rm -f "$root/etc/resolv.conf"
cp -L /etc/resolv.conf "$root/etc/resolv.conf" 2>/dev/null || true
if [ -d "$work/cache" ]; then
  mkdir "$root/run/uv-cache"
  mount --bind "$(cat "$work/cache/where")" "$root/run/uv-cache"
fi
chroot "$root" /bin/sh -eu -c "$script"
rm -f "$root/etc/resolv.conf"
"""


def _layer(
    target: Path, lower: Sequence[Path], script: str, given: Path, work: Path, *, uv_cache: Path | None = None
) -> None:
    """Run a script in a chroot on an overlay; what it changed becomes the layer."""
    if uv_cache is not None:
        (work / "cache").mkdir()
        (work / "cache/where").write_text(str(uv_cache))
    keep = {
        name: value for name, value in os.environ.items()
        if name.startswith("UV_") or name.lower() in {"http_proxy", "https_proxy", "no_proxy"}
    }  # fmt: skip
    environment = {
        **keep, "PATH": "/usr/sbin:/usr/bin:/sbin:/bin", "HOME": "/root", "LC_ALL": "C.UTF-8",
        "DEBIAN_FRONTEND": "noninteractive", "SSL_CERT_FILE": "/run/build/ca.crt",
    }  # fmt: skip
    bundle = Path("/etc/ssl/certs/ca-certificates.crt")
    (given / "ca.crt").write_bytes(bundle.read_bytes() if bundle.exists() else b"")
    lowers = ":".join(str(path) for path in lower)
    run(contained(["/bin/sh", "-c", _ON_AN_OVERLAY, "sh", work, lowers, script]), env=environment, timeout_s=1800)
    for leftover in ("run", "tmp", "var/lib/apt/lists", "var/cache/apt", "root/.cache"):
        shutil.rmtree(work / "up" / leftover, ignore_errors=True)
    (work / "up").rename(target)
    shutil.rmtree(work)


# What a script in a layer begins with: apt with the machine's archive, and no documents of packages.
_WITH_APT = """
export APT_CONFIG=/run/build/apt.conf
dpkg_options() { for word; do printf -- '-o Dpkg::Options::=--%s ' "$word"; done; }
set -f
options=$(dpkg_options force-unsafe-io @EXCLUDED@)
apt-get -qq update
"""


def _with_apt(given: Path) -> str:
    """Give a layer's script the archive; what the script begins with."""
    (given / "sources.list").write_text(
        f"deb [signed-by=/usr/share/keyrings/debian-archive-keyring.gpg] {mirror()} {SUITE} main\n"
    )
    (given / "apt.conf").write_text("\n".join([
        'Dir::Etc::SourceList "/run/build/sources.list";', 'Acquire::Languages "none";',
        'APT::Install-Recommends "false";', 'APT::Sandbox::User "root";', 'Dpkg::Use-Pty "false";', *apt_proxy(), "",
    ]))  # fmt: skip
    (given / "policy-rc.d").write_text("#!/bin/sh\nexit 101\n")
    return _WITH_APT.replace("@EXCLUDED@", " ".join(f"'path-exclude={pattern}'" for pattern in NO_DOCUMENTATION))


def on_a_layer(places: Places, work: Path, script: str, given: Mapping[str, str]) -> None:
    """Run a script above the node tree and keep nothing but what it puts into /run/build/out, which is WORK/out.

    given: files that it finds in /run/build; $options is what it gives `apt-get install`.
    """
    inside = Path(tempfile.mkdtemp(dir=work))
    put = inside / "given"
    put.mkdir()
    for name, text in given.items():
        (put / name).write_text(text)
    begin = _with_apt(put)
    (put / "out").mkdir()
    keep = f"{script}\ncp -a /run/build/out /kept\n"
    _layer(work / "layer", [node_tree_path(places)], begin + keep, put, inside)
    (work / "layer/kept").rename(work / "out")
    shutil.rmtree(work / "layer")


def _controller_layer(target: Path, node: Path) -> None:
    work = Path(tempfile.mkdtemp(prefix=f"{target.name}.part-", dir=target.parent))
    given = work / "given"
    given.mkdir()
    script = (
        _with_apt(given)
        + f"""
apt-get -qq -y $options install {" ".join(CONTROLLER_PACKAGES)}
apt-get -qq clean
"""
    )
    _layer(target, [node], script, given, work)


def _venv_layer(target: Path, controller: Path, node: Path) -> None:
    work = Path(tempfile.mkdtemp(prefix=f"{target.name}.part-", dir=target.parent))
    given = work / "given"
    (given / "project").mkdir(parents=True)
    for name in ("pyproject.toml", "uv.lock"):
        shutil.copy(CHECKOUT / name, given / "project" / name)
    uv = uv_program()
    shutil.copy(uv, given / "uv")
    cache = Path(run([uv, "cache", "dir"]).out.strip())
    cache.mkdir(parents=True, exist_ok=True)
    # --locked: a lock that does not fit pyproject.toml is an error here, not a silent other environment.
    script = f"""
export UV_PROJECT_ENVIRONMENT={VENV} UV_PYTHON=/usr/bin/python3 UV_PYTHON_DOWNLOADS=never UV_LINK_MODE=copy
export UV_CACHE_DIR=/run/uv-cache UV_NO_PROGRESS=1
/run/build/uv sync --quiet --locked --no-dev --no-install-project --compile-bytecode --project /run/build/project
site=$({VENV}/bin/python -c 'import sysconfig; print(sysconfig.get_path("purelib"))')
echo {CHECKOUT_INSIDE}/tools > "$site/bedplate-checkout.pth"
mkdir -p {CHECKOUT_INSIDE} /usr/local/bin
for name in ansible ansible-playbook ansible-inventory ansible-doc ansible-config ansible-vault pytest; do
  ln -s {VENV}/bin/$name /usr/local/bin/$name
done
printf '%s\\n' '#!{VENV}/bin/python' 'from bedplate.cli.main import main' 'main()' > /usr/local/bin/bedplate
chmod 755 /usr/local/bin/bedplate
ln -s /usr/local/bin/bedplate {VENV}/bin/bedplate
"""
    _layer(target, [controller, node], script, given, work, uv_cache=cache)


def uv_program() -> Path:
    """uv itself, not a shim that finds it: a copy of it runs inside the controller's tree."""
    private = Path("/var/cache/bedplate")
    candidates = [
        *(Path(directory) / "uv" for directory in os.environ.get("PATH", "").split(os.pathsep) if directory),
        Path(sys.prefix) / "bin/uv", *sorted(private.glob("uv-*/bin/uv"), reverse=True),
        *sorted((Path.home() / ".pyenv/versions").glob("*/bin/uv"), reverse=True),
    ]  # fmt: skip
    for candidate in candidates:
        if candidate.is_file() and os.access(candidate, os.X_OK) and _is_program(candidate):
            return candidate.resolve()
    raise BedplateError("no uv on this machine: looked in PATH, /var/cache/bedplate and ~/.pyenv (run: tools/setup)")


def _is_program(path: Path) -> bool:
    with path.open("rb") as file:
        return file.read(4) == b"\x7fELF"


@contextmanager
def alone_in(cache: Path, steps: Steps) -> Iterator[None]:
    """Wait until no other lab builds in this cache: it would take what is half built for a dead one's leftovers."""
    cache.mkdir(parents=True, exist_ok=True)
    with (cache / "lock").open("a") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            with steps.step(f"waiting: another lab builds in {cache}", expected="a minute or two"):
                fcntl.flock(file, fcntl.LOCK_EX)
        yield


def forget_unfinished(places: Places) -> None:
    """Take away what a killed build left; its mounts ended with it."""
    for leftover in places.cache.glob("*.part-*"):
        shutil.rmtree(leftover)


def forget_unused(places: Places, used: Iterable[Path]) -> None:
    """Note what is used now; take away what no lab has used for some days and no running host stands on."""
    for path in used:
        os.utime(path)
    mounted = Path("/proc/self/mountinfo").read_text()
    oldest = time.time() - KEEP_UNUSED_DAYS * 86400
    for path in places.cache.iterdir():
        if path.is_dir() and path.stat().st_mtime < oldest and str(path) not in mounted:
            shutil.rmtree(path)
