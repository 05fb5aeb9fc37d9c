"""What the host layers of a node show: units, loaded modules and the versions that must be one; one question."""

import json
import re
import shlex
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from bedplate.observe.expectation import Expectation
from bedplate.observe.observed import NotUnderstood

SYSCTL_FILE = "/etc/sysctl.d/90-bedplate.conf"  # roles/base
OURS_IN_DAEMON = "/etc/bedplate/docker-daemon.json"  # roles/container_runtime
DAEMON = "/etc/docker/daemon.json"
MOUNTS = ("/material", "/runs")  # roles/storage
SECTION = re.compile(r"^== (\w+)$", re.MULTILINE)

# Each part answers by itself, and one that cannot says nothing: an absent program is a difference, not an error.
QUERY = """
echo == kernel; uname -r
echo == command_line; cat /proc/cmdline; echo
echo == units; systemctl show --property Id,ActiveState,UnitFileState,LoadState -- {units} 2>/dev/null
echo == modules
for m in {modules}; do if test -d /sys/module/$m; then echo "$m $(cat /sys/module/$m/version 2>/dev/null)"; fi; done
echo == manager; nv-fabricmanager --version 2>/dev/null
echo == libraries; ls -d /usr/lib/*/libnvidia-ml.so.*.* 2>/dev/null
echo == empty
find /usr/lib -maxdepth 2 -type f -size 0 \\( -name 'libnvidia-*.so.*.*' -o -name 'libcuda*.so.*.*' \\
  -o -name 'libnvcuvid.so.*.*' \\) ! -name 'libnvidia-container*' 2>/dev/null |
  while read -r f; do echo "${{f##*/}} $(dpkg -S "$f" 2>/dev/null | sed 's/:.*//;q')"; done
echo == fabric; {fabric}
echo == daemon; cat {daemon} 2>/dev/null
echo == ours; cat {ours} 2>/dev/null
echo == settings
sed -n 's/^\\([a-z][^=]*\\) = \\(.*\\)$/\\1 \\2/p' {sysctl} 2>/dev/null | while read -r key value; do
  echo "$key=$value=$(sysctl -n "$key" 2>/dev/null | tr '\\t' ' ')"
done
echo == mounts; findmnt --raw --noheadings --output TARGET,OPTIONS 2>/dev/null | grep -E '^({mounts}) '
echo == upgrade
LC_ALL=C apt-get -s -qq -o Debug::NoLocking=1 dist-upgrade 2>&1 | sed -n 's/^\\(Inst\\|Remv\\|E:\\) */\\1 /p'
echo == end
"""
FABRIC = "nvidia-smi --query-gpu=fabric.state,fabric.status --format=csv,noheader 2>&1"


@dataclass(frozen=True)
class HostLayers:
    """What one node showed.

    units: name -> (ActiveState, UnitFileState); modules: loaded ones, with their version ("" where they have none);
    manager: version of Fabric Manager's program; libraries: versions of libnvidia-ml; empty: library of the driver
    without a byte -> its package, "" where dpkg knows none; fabric: a line for each GPU;
    daemon, ours: the whole of Docker's configuration, and what of it is ours; settings: key -> (file, kernel);
    mounts: point -> options; upgrade: what a dist-upgrade would do, a line for each.
    """

    kernel: str
    command_line: tuple[str, ...]
    units: Mapping[str, tuple[str, str]]
    modules: Mapping[str, str]
    manager: str
    libraries: tuple[str, ...]
    empty: Mapping[str, str]
    fabric: tuple[str, ...]
    daemon: Any
    ours: Any
    settings: Mapping[str, tuple[str, str]]
    mounts: Mapping[str, frozenset[str]]
    upgrade: tuple[str, ...]


def look_layers(run: Callable[..., Any], expected: Expectation) -> HostLayers:
    """Ask a node; run: testinfra's host.run.

    Raises:
        NotUnderstood: the answer is cut or of another shape.
    """
    modules = sorted({name.replace("-", "_") for name in (*expected.modules, *(["nvidia"] if expected.driver else []))})
    answer = run(
        QUERY.format(
            units=shlex.join(expected.units), modules=shlex.join(modules), daemon=DAEMON, ours=OURS_IN_DAEMON,
            sysctl=SYSCTL_FILE, mounts="|".join(MOUNTS), fabric=FABRIC if expected.driver else "true",
        )
    )  # fmt: skip
    if answer.rc:
        raise NotUnderstood(f"the question about the host layers ended with {answer.rc}: {answer.stderr[-500:]}")
    return parse_layers(str(answer.stdout))


def parse_layers(text: str) -> HostLayers:
    """The answer of QUERY.

    Raises:
        NotUnderstood: it is cut or of another shape.
    """
    _, *pieces = SECTION.split(text)
    parts = {name: body.strip("\n") for name, body in zip(pieces[::2], pieces[1::2], strict=True)}
    if "end" not in parts:
        raise NotUnderstood("the answer about the host layers is cut")
    manager = re.search(r"version is : (\S+)", parts["manager"])
    blocks = [
        dict(line.split("=", 1) for line in block.splitlines() if "=" in line) for block in parts["units"].split("\n\n")
    ]
    try:
        return HostLayers(
            kernel=parts["kernel"].strip(),
            command_line=tuple(parts["command_line"].split()),
            units={block["Id"]: (block["ActiveState"], block["UnitFileState"]) for block in blocks if block},
            modules={line.partition(" ")[0]: line.partition(" ")[2] for line in parts["modules"].splitlines()},
            manager=manager[1] if manager else "",
            libraries=tuple(line.rpartition("libnvidia-ml.so.")[2] for line in parts["libraries"].splitlines()),
            empty={line.partition(" ")[0]: line.partition(" ")[2] for line in parts["empty"].splitlines()},
            fabric=tuple(parts["fabric"].splitlines()),
            daemon=json.loads(parts["daemon"] or "null"),
            ours=json.loads(parts["ours"] or "null"),
            settings={
                key: (wanted, there)
                for key, wanted, there in (line.split("=", 2) for line in parts["settings"].splitlines())
            },
            mounts={
                line.partition(" ")[0]: frozenset(line.partition(" ")[2].split(","))
                for line in parts["mounts"].splitlines()
            },
            upgrade=tuple(parts["upgrade"].splitlines()),
        )
    except (KeyError, ValueError) as fault:
        raise NotUnderstood(f"the answer about the host layers has another shape: {fault}") from None


def emptied(empty: Mapping[str, str], versions: Mapping[str, str]) -> list[str]:
    """What to say of libraries without a byte; empty: library -> package; versions: of the lock's packages."""
    found = []
    for library, package in empty.items():
        name = f"{package}={versions[package]}" if package in versions else package
        found.append(
            f"{library} is empty, dpkg calls {package} installed (run: apt-get install --reinstall {name})"
            if package
            else f"{library} is empty, and of no package that dpkg knows (remove it)"
        )
    return found


def lacking(wanted: Any, there: Any, path: str = "") -> list[str]:
    """Keys of wanted that are absent or other in there, as paths."""
    if isinstance(wanted, dict) and isinstance(there, dict):
        return [found for key, value in wanted.items() for found in lacking(value, there.get(key), f"{path}.{key}")]
    return [] if wanted == there else [f"{path[1:] or 'all of it'} is {there!r}, ours is {wanted!r}"]
