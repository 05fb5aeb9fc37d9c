"""The program that a node runs: it says what the node is now, as one JSON document, and changes nothing.

It is sent over ssh to `python3 -I -`, so it imports nothing but the standard library of Python 3.9 and runs once.
The controller appends the call of `main` with its questions (observe/collect.py).

Invariants
- Every part of the document is there. One that could not be read is {"unknown": why}; what surely does not exist
  is {"absent": why}. Neither is ever left out, or empty.
- What stands in a file never leaves the node: of files, their sha256, mode, owner and size.
- Each part has a deadline and a largest size; a part beyond either is unknown, and the others are still said.

Parts: boot_id hostname serial os kernel packages modules nvidia files units images reboot time.
"""

# os alone starts in half the time of pathlib.
# ruff: noqa: PTH114, PTH115, PTH116, PTH119, PTH123, PTH208

from __future__ import annotations

import grp
import hashlib
import json
import os
import pwd
import re
import signal
import stat
import subprocess
import sys
import time
from functools import partial

TYPE_CHECKING = False  # `typing` itself would cost every node its import
if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from types import FrameType
    from typing import Any

SCHEMA = 1
PART_BYTES = 2 * 1024 * 1024  # of JSON: 20,000 packages
TEXT_BYTES = 64 * 1024  # of a file whose text is read: the largest is /proc/modules
LONGEST = 4096  # characters of one text in the document; the longest is a kernel command line
LARGEST_FILE = 256 * 1024 * 1024  # bytes of a configuration file that is hashed
MOST_IMAGES = 1000
CHUNK = 1024 * 1024
DPKG = r"${Package}\t${Version}\t${Architecture}\t${db:Status-Want}\t${db:Status-Status}\t${db:Status-Eflag}\n"
PROPERTIES = (
    "LoadState", "ActiveState", "SubState", "UnitFileState", "ConditionResult", "ConditionTimestampMonotonic",
    "NeedDaemonReload",
)  # fmt: skip
MAY_BE_ABSENT = ("serial", "images")  # of a part; every node has the others
OS_KEYS = ("ID", "VERSION_ID", "VERSION_CODENAME", "PRETTY_NAME")
NVRM = re.compile(r"NVRM version:\s*(?P<what>.*?)\s+(?P<version>\d+\.\d+(?:\.\d+)?)(?:\s|$)")
LIBRARY = re.compile(r"libnvidia-ml\.so\.(\d+\.\d+(?:\.\d+)?)")
OF_DRIVER = re.compile(r"lib(?:nvidia-(?!container)[a-z0-9-]+|cuda|cudadebugger|nvcuvid)\.so\.\d+\.\d+(?:\.\d+)?")


class Unknown(Exception):
    """Why a part could not be read."""


class Absent(Exception):
    """Why it is certain that there is nothing to read."""


class Late(Exception):
    """The deadline of a part passed."""


class Node:
    """The node that is looked at; root: where its files are, "" but in tests."""

    def __init__(self, questions: dict[str, Any]) -> None:
        self.root = str(questions.get("root", ""))
        self.paths: Sequence[str] = questions["paths"]
        self.units: Sequence[str] = questions["units"]
        self.image_folder: str = questions["images"]
        self.hash_images: bool = questions["hash_images"]

    # --- one method a part --------------------------------------------------------------------

    def boot_id(self) -> str:
        return self.line("/proc/sys/kernel/random/boot_id")

    def hostname(self) -> str:
        return self.line("/proc/sys/kernel/hostname")

    def serial(self) -> str:
        return self.line("/sys/class/dmi/id/product_serial")

    def os(self) -> dict[str, Any]:
        found: dict[str, Any] = dict.fromkeys((key.lower() for key in OS_KEYS), "")
        for line in self.text("/etc/os-release").splitlines():
            key, _, value = line.partition("=")
            if key in OS_KEYS:
                found[key.lower()] = plain(value.strip().strip("\"'"))
        if not found["id"]:
            raise Unknown("/etc/os-release has no ID")
        return found

    def kernel(self) -> dict[str, str]:
        return {
            "release": self.line("/proc/sys/kernel/osrelease"),
            "version": self.line("/proc/sys/kernel/version"),
            "command_line": self.line("/proc/cmdline", may_be_empty=True),
        }

    def packages(self) -> list[list[str]]:
        """[name, version, architecture, want, status] of everything that dpkg knows."""
        admin = [f"--admindir={self.root}/var/lib/dpkg"] if self.root else []
        rows = []
        for line in command(["dpkg-query", *admin, "-W", "-f", DPKG]).splitlines():
            fields = line.split("\t")
            if len(fields) != 6:  # noqa: PLR2004  of DPKG
                raise Unknown(f"dpkg-query said {plain(line)!r}")
            name, version, architecture, want, status, flag = fields
            rows.append([name, version, architecture, want, status if flag == "ok" else f"{status} {flag}"])
        if not any(row[0] == "dpkg" for row in rows):
            raise Unknown("dpkg-query did not name dpkg itself: its answer is none")
        return sorted(rows)

    def modules(self) -> dict[str, str | None]:
        """Modules that are loaded or built in: name -> version, null where it has none, as most of the kernel's own."""
        try:
            loaded = {line.split()[0] for line in self.text("/proc/modules").splitlines() if line.split()}
        except Absent:
            loaded = set()  # a kernel without loadable modules; /sys/module has those that are built in
        try:
            listed = os.listdir(f"{self.root}/sys/module")
        except OSError as fault:
            raise Unknown(f"/sys/module: {fault.strerror}") from fault
        found: dict[str, str | None] = {}
        for name in sorted({*loaded, *listed}):
            try:
                found[plain(name)] = self.line(f"/sys/module/{name}/version")
            except Absent:
                found[plain(name)] = None
        return found

    def nvidia(self) -> dict[str, Any]:
        """The driver that is loaded (or why none is), and the versions of the management library on the disk.

        Under "empty": libraries of the driver without a byte, which a failed installation leaves.
        """
        loaded: dict[str, Any]
        try:
            first = self.line("/proc/driver/nvidia/version")
        except Absent as why:
            loaded = {"absent": str(why)}
        else:
            match = NVRM.match(first)
            if match is None:
                raise Unknown(f"/proc/driver/nvidia/version says {first!r}")
            loaded = {"version": match["version"], "open": "Open Kernel Module" in match["what"]}
        libraries, empty = set(), set()
        for folder in self.folders("/usr/lib"):
            try:
                names = os.listdir(folder)
            except OSError as fault:
                raise Unknown(f"{folder}: {fault.strerror}") from fault
            libraries |= {match[1] for match in map(LIBRARY.fullmatch, names) if match}
            empty |= {name for name in names if OF_DRIVER.fullmatch(name) and is_empty(f"{folder}/{name}")}
        return {"loaded": loaded, "libraries": sorted(libraries), "empty": sorted(empty)}

    def files(self) -> dict[str, Any]:
        return {path: said(partial(self.file, path)) for path in self.paths}

    def file(self, path: str) -> dict[str, Any]:
        """What a file is, but for what it says."""
        try:
            handle = os.open(self.root + path, os.O_RDONLY | os.O_NONBLOCK | os.O_NOCTTY | os.O_CLOEXEC)
        except (FileNotFoundError, NotADirectoryError):
            what = "is a link that leads nowhere" if os.path.islink(self.root + path) else "is not there"
            raise Absent(f"{path} {what}") from None
        except OSError as fault:
            raise Unknown(f"{path}: {fault.strerror}") from fault
        about = os.fstat(handle)
        if not stat.S_ISREG(about.st_mode):
            os.close(handle)
            raise Absent(f"{path} is no file but a {kind(about.st_mode)}")
        with os.fdopen(handle, "rb") as file:
            if about.st_size > LARGEST_FILE:
                raise Unknown(f"{path} has {about.st_size} bytes: too many for a configuration file")
            return {
                "sha256": digest(file, path), "mode": f"{stat.S_IMODE(about.st_mode):04o}", "size": about.st_size,
                "owner": f"{name_of(pwd.getpwuid, about.st_uid)}:{name_of(grp.getgrgid, about.st_gid)}",
            }  # fmt: skip

    def units_(self) -> dict[str, Any]:
        if not self.units:
            return {}
        out = command(["systemctl", "show", "--no-pager", f"--property={','.join(PROPERTIES)}", "--", *self.units])
        blocks = [block for block in out.split("\n\n") if block.strip()]
        if len(blocks) != len(self.units):
            raise Unknown(f"systemctl was asked for {len(self.units)} units and told of {len(blocks)}")
        return {name: said(partial(unit, block)) for name, block in zip(self.units, blocks)}  # noqa: B905  Python 3.9

    def images(self) -> dict[str, Any]:
        """The squashfs files: what `current.sqsh` leads to (null: nothing), and each with its size."""
        folder = self.root + self.image_folder
        try:
            names = sorted(name for name in os.listdir(folder) if name.endswith(".sqsh"))
        except FileNotFoundError:
            raise Absent(f"{self.image_folder} is not there") from None
        except OSError as fault:
            raise Unknown(f"{self.image_folder}: {fault.strerror}") from fault
        if len(names) > MOST_IMAGES:
            raise Unknown(f"{self.image_folder} has {len(names)} images: more than {MOST_IMAGES}")
        current, found = None, {}
        for name in names:
            path = f"{folder}/{name}"
            try:
                if os.path.islink(path):
                    if name == "current.sqsh":
                        current = plain(os.path.basename(os.readlink(path)))
                    continue
                sha256 = None
                if self.hash_images:
                    with open(path, "rb") as file:
                        sha256 = digest(file, path)
                found[plain(name)] = {"size": os.stat(path).st_size, "sha256": sha256}
            except OSError as fault:
                raise Unknown(f"{self.image_folder}/{plain(name)}: {fault.strerror}") from fault
        return {"current": current, "files": found}

    def reboot(self) -> dict[str, Any]:
        """Whether a package asked for a reboot, and which ones."""
        try:
            self.text("/run/reboot-required")
        except Absent:
            return {"required": False, "by": []}
        try:
            by = self.text("/run/reboot-required.pkgs").split()
        except Absent:
            by = []
        return {"required": True, "by": sorted({plain(name) for name in by})}

    def time(self) -> dict[str, int]:
        """Milliseconds since 1970, UTC; seconds that the node's time zone is ahead of it."""
        return {"utc_ms": time.time_ns() // 1_000_000, "offset_s": time.localtime().tm_gmtoff}

    # --- reading ------------------------------------------------------------------------------

    def text(self, path: str) -> str:
        try:
            with open(self.root + path, "rb") as file:
                data = file.read(TEXT_BYTES + 1)
        except (FileNotFoundError, NotADirectoryError):
            raise Absent(f"{path} is not there") from None
        except OSError as fault:
            raise Unknown(f"{path}: {fault.strerror}") from fault
        if len(data) > TEXT_BYTES:
            raise Unknown(f"{path} has more than {TEXT_BYTES} bytes")
        return data.decode("utf-8", "replace")

    def line(self, path: str, *, may_be_empty: bool = False) -> str:
        """The first line of a file."""
        found = plain((self.text(path).splitlines() or [""])[0].strip())
        if not found and not may_be_empty:
            raise Unknown(f"{path} is empty")
        return found

    def folders(self, path: str) -> list[str]:
        """The directories where a library may lie: /usr/lib and those of its architectures."""
        try:
            with os.scandir(self.root + path) as entries:
                return [self.root + path, *(e.path for e in entries if e.name.endswith("-linux-gnu") and e.is_dir())]
        except FileNotFoundError:
            return []
        except OSError as fault:
            raise Unknown(f"{path}: {fault.strerror}") from fault


PARTS: tuple[tuple[str, Callable[[Node], Any]], ...] = (
    ("boot_id", Node.boot_id), ("hostname", Node.hostname), ("serial", Node.serial), ("os", Node.os),
    ("kernel", Node.kernel), ("packages", Node.packages), ("modules", Node.modules), ("nvidia", Node.nvidia),
    ("files", Node.files), ("units", Node.units_), ("images", Node.images), ("reboot", Node.reboot),
    ("time", Node.time),
)  # fmt: skip


def is_empty(path: str) -> bool:
    try:
        about = os.lstat(path)
    except OSError as fault:
        raise Unknown(f"{path}: {fault.strerror}") from fault
    return stat.S_ISREG(about.st_mode) and about.st_size == 0


def unit(block: str) -> dict[str, Any]:
    """One unit out of `systemctl show`.

    condition: "no" is the unit that systemd skipped, which `systemctl start` calls a success; "never checked" is
    one that was not started since boot.
    """
    shown = dict(line.partition("=")[::2] for line in block.splitlines() if line)
    lacking = [name for name in PROPERTIES if name not in shown]
    if lacking:
        raise Unknown(f"systemctl did not tell {', '.join(lacking)}")
    checked = shown["ConditionTimestampMonotonic"] not in ("", "0")
    return {
        "load": plain(shown["LoadState"]), "active": plain(shown["ActiveState"]), "sub": plain(shown["SubState"]),
        "file": plain(shown["UnitFileState"]),
        "condition": plain(shown["ConditionResult"]) if checked else "never checked",
        "reload_needed": shown["NeedDaemonReload"] == "yes",
    }  # fmt: skip


def command(argv: list[str]) -> str:
    """What a program prints. Its environment is as little as it needs, so that it speaks English."""
    env = {"PATH": os.environ.get("PATH", "/usr/sbin:/usr/bin:/sbin:/bin"), "LC_ALL": "C.UTF-8", "LANGUAGE": ""}
    try:
        done = subprocess.run(argv, check=False, env=env, stdin=subprocess.DEVNULL, capture_output=True)
    except FileNotFoundError:
        raise Unknown(f"no program {argv[0]}") from None
    except OSError as fault:
        raise Unknown(f"{argv[0]}: {fault.strerror}") from fault
    if done.returncode:
        words = done.stderr.decode("utf-8", "replace").strip().splitlines()
        raise Unknown(f"{argv[0]} ended with {done.returncode}" + (f": {plain(words[-1])}" if words else ""))
    return done.stdout.decode("utf-8", "replace")


def digest(file: Any, path: str) -> str:
    found = hashlib.sha256()
    try:
        for chunk in iter(lambda: file.read(CHUNK), b""):
            found.update(chunk)
    except OSError as fault:
        raise Unknown(f"{path}: {fault.strerror}") from fault
    return f"sha256:{found.hexdigest()}"


def name_of(look_up: Callable[[int], Any], number: int) -> str:
    try:
        return plain(look_up(number)[0])
    except KeyError:
        return str(number)


def kind(mode: int) -> str:
    names = ((stat.S_ISDIR, "directory"), (stat.S_ISFIFO, "pipe"), (stat.S_ISSOCK, "socket"), (stat.S_ISBLK, "device"))
    return next((name for is_one, name in names if is_one(mode)), "device")


def plain(text: str) -> str:
    """A text that steers no terminal and has an end."""
    return "".join(letter if letter.isprintable() else "?" for letter in text[:LONGEST])


def said(look: Callable[[], Any]) -> Any:
    """What was found, or why nothing was."""
    try:
        return look()
    except Absent as why:
        return {"absent": plain(str(why))}
    except Unknown as why:
        return {"unknown": plain(str(why))}


def part(node: Node, name: str, look: Callable[[Node], Any], deadline_s: float) -> Any:
    """One part, in its time and its size, whatever happens in it."""
    signal.setitimer(signal.ITIMER_REAL, deadline_s)
    try:
        found = said(lambda: look(node))
        signal.setitimer(signal.ITIMER_REAL, 0)
        size = len(json.dumps(found))
    except Late:
        return {"unknown": f"no end after {deadline_s:g} s"}
    except Exception as fault:  # noqa: BLE001  the other parts are still said
        return {"unknown": plain(f"{type(fault).__name__}: {fault}")}
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
    if size > PART_BYTES:
        return {"unknown": f"{size} bytes: more than {PART_BYTES}"}
    if isinstance(found, dict) and set(found) == {"absent"} and name not in MAY_BE_ABSENT:
        return {"unknown": found["absent"]}
    return found


def late(number: int, frame: FrameType | None) -> None:  # noqa: ARG001
    raise Late


def main(questions: dict[str, Any]) -> None:
    """Print the document."""
    signal.signal(signal.SIGALRM, late)
    node = Node(questions)
    document: dict[str, Any] = {"schema": SCHEMA}
    for name, look in PARTS:
        document[name] = part(node, name, look, questions["deadline_s"])
    sys.stdout.write(json.dumps(document, sort_keys=True) + "\n")
