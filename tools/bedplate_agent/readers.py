"""What is read from files instead of a program's output. Each runs in a process of its own: a read can hang.

A reader yields (key, value); `listing` writes them as `key TAB value` lines and ends with their number, so that a
listing that was cut is not taken for a short one.
"""

# os alone starts in half the time of pathlib.

from __future__ import annotations

import os
import re
import stat
import time
from collections.abc import Iterator

NCCL_CONF = "/etc/nccl.conf"
SMALL = 64 * 1024
VPD_BYTES = 4096
Pairs = Iterator[tuple[str, str]]


def listing(pairs: Pairs) -> str:
    lines = []
    for key, value in pairs:
        clean = " ".join(value.split()) if "\n" in value or "\t" in value else value
        lines.append(f"{' '.join(key.split())}\t{clean}\n")
    return "".join([*lines, f"end\t{len(lines)}\n"])


def text(path: str) -> str:
    with open(path, "rb") as file:
        return file.read(SMALL).decode("utf-8", "replace").strip()


def said(path: str) -> str | None:
    """What a file says; None where there is none, or it cannot be read."""
    try:
        return text(path)
    except OSError:
        return None


def names(path: str) -> list[str]:
    try:
        return sorted(os.listdir(path))
    except FileNotFoundError:
        return []


def some(root: str, *paths: str) -> Pairs:
    """Those of the files below a folder that are there."""
    for path in paths:
        found = said(f"{root}/{path}")
        if found is not None:
            yield path, found


def pci() -> Pairs:
    """NVIDIA's devices: 3D controllers (GPUs) and bridges (NVSwitches up to Hopper), and whether they answer."""
    for address in names("/sys/bus/pci/devices"):
        root = f"/sys/bus/pci/devices/{address}"
        if said(f"{root}/vendor") != "0x10de":
            continue
        kind = said(f"{root}/class") or ""
        what = "gpu" if kind.startswith("0x0302") else "nvswitch" if kind.startswith("0x0680") else ""
        if not what:
            continue
        with open(f"{root}/config", "rb") as file:
            head = file.read(4).hex()
        yield f"{what}/{address}/config", head
        for key, value in some(
            root, "device", "subsystem_device", "current_link_width", "max_link_width", "current_link_speed"
        ):
            yield f"{what}/{address}/{key}", value


def gpu_files() -> Pairs:
    """What the driver shows of its GPUs in /proc and /dev, and which version it is."""
    for bus in names("/proc/driver/nvidia/gpus"):
        for line in (said(f"/proc/driver/nvidia/gpus/{bus}/information") or "").splitlines():
            key, _, value = line.partition(":")
            if key.strip() in ("GPU UUID", "Device Minor", "Model"):
                yield f"proc/{bus}/{key.strip()}", value.strip()
    for name in names("/dev"):
        if re.fullmatch(r"nvidia([0-9]+|ctl|-uvm)", name):
            yield f"dev/{name}", "character" if stat.S_ISCHR(os.stat(f"/dev/{name}").st_mode) else "no device"
    for path in ("/proc/driver/nvidia/version", "/sys/module/nvidia/version"):
        found = said(path)
        if found is not None:
            yield path.strip("/"), found.splitlines()[0] if found else ""


def modules() -> Pairs:
    """Loaded modules: name -> state (Live, Loading, Unloading)."""
    with open("/proc/modules", encoding="utf-8") as file:
        for line in file:
            words = line.split()
            yield words[0], words[4] if len(words) > 4 else ""  # noqa: PLR2004  name size users by state address


def acs() -> Pairs:
    """ACS control of every PCI bridge that has it: bit 2 redirects requests, bit 3 completions."""
    for address in names("/sys/bus/pci/devices"):
        root = f"/sys/bus/pci/devices/{address}"
        if not (said(f"{root}/class") or "").startswith("0x0604"):
            continue
        with open(f"{root}/config", "rb") as file:
            config = file.read(4096)
        if len(config) < 4096:  # noqa: PLR2004  only root sees the extended capabilities
            yield address, f"unreadable: {len(config)} bytes of configuration space"
            continue
        place, seen = 0x100, set()
        while place and place not in seen and place + 8 <= len(config):
            seen.add(place)
            head = int.from_bytes(config[place : place + 4], "little")
            if head & 0xFFFF == 0x000D:  # noqa: PLR2004  PCI Express Base Specification: id of Access Control Services
                yield address, f"0x{int.from_bytes(config[place + 6 : place + 8], 'little'):04x}"
            place = head >> 20


def host(*sysctls: str) -> Pairs:  # noqa: C901  a list of files
    """Kernel, processors, memory, and the settings that the profile names."""
    with open("/proc/cmdline", encoding="utf-8") as file:
        yield "cmdline", file.read().strip()
    for key, path in (
        ("kernel", "/proc/sys/kernel/osrelease"), ("hostname", "/proc/sys/kernel/hostname"),
        ("boot_id", "/proc/sys/kernel/random/boot_id"), ("uptime", "/proc/uptime"), ("loadavg", "/proc/loadavg"),
        ("cpu/online", "/sys/devices/system/cpu/online"), ("cpu/present", "/sys/devices/system/cpu/present"),
        ("cpu/smt", "/sys/devices/system/cpu/smt/active"), ("numa/online", "/sys/devices/system/node/online"),
        ("thp", "/sys/kernel/mm/transparent_hugepage/enabled"), ("serial", "/sys/class/dmi/id/product_serial"),
    ):  # fmt: skip
        found = said(path)
        if found is not None:
            yield key, found
    governors: dict[str, int] = {}
    for name in names("/sys/devices/system/cpu"):
        if re.fullmatch(r"cpu[0-9]+", name):
            governor = said(f"/sys/devices/system/cpu/{name}/cpufreq/scaling_governor") or "none"
            governors[governor] = governors.get(governor, 0) + 1
    for governor, count in sorted(governors.items()):
        yield f"governor/{governor}", str(count)
    for line in text("/proc/meminfo").splitlines():
        key, _, value = line.partition(":")
        if key in ("MemTotal", "MemAvailable", "SwapTotal", "HugePages_Total", "HardwareCorrupted"):
            yield f"meminfo/{key}", value.strip()
    for name in names("/sys/devices/system/edac/mc"):
        if name.startswith("mc"):
            for key, value in some(f"/sys/devices/system/edac/mc/{name}", "ce_count", "ue_count"):
                yield f"edac/{name}/{key}", value
    yield "iommu/devices", str(len(names("/sys/class/iommu")))
    for name in sysctls:
        found = said("/proc/sys/" + name.replace(".", "/"))
        yield f"sysctl/{name}", "none" if found is None else found


COUNTERS = (
    "symbol_error", "link_downed", "link_error_recovery", "port_rcv_errors", "local_link_integrity_errors",
    "VL15_dropped", "port_xmit_discards", "excessive_buffer_overrun_errors",
)  # fmt: skip


def infiniband() -> Pairs:
    """Devices, ports and counters; of functions that manage an NVSwitch no counter is read: it fills the kernel log."""
    for name in names("/sys/class/infiniband"):
        root = f"/sys/class/infiniband/{name}"
        bridge = _manages_nvswitch(f"{root}/device/vpd")
        yield f"{name}/nvswitch_management", bridge
        for key, value in some(root, "fw_ver", "board_id", "node_guid", "hca_type"):
            yield f"{name}/{key}", value
        for key, value in some(
            f"{root}/device", "current_link_width", "max_link_width", "current_link_speed", "max_link_speed"
        ):
            yield f"{name}/pci/{key}", value
        for port in names(f"{root}/ports"):
            inside = ["state", "phys_state", "rate", "link_layer", "lid", "sm_lid", "pkeys/0"]
            inside += [] if bridge == "1" else [f"counters/{counter}" for counter in COUNTERS]
            for key, value in some(f"{root}/ports/{port}", *inside):
                yield f"{name}/ports/{port}/{key}", value


def _manages_nvswitch(path: str) -> str:
    try:
        with open(path, "rb") as file:
            return "1" if b"SW_MNG" in file.read(VPD_BYTES) else "0"
    except FileNotFoundError:
        return "0"  # virtual functions and other makers' cards have no VPD
    except OSError:
        return "unknown"


def nccl_conf() -> Pairs:
    """What NCCL reads on every start: NAME=VALUE lines; of two with one name it takes the later."""
    found = {}
    for line in (said(NCCL_CONF) or "").splitlines():
        name, equals, value = line.partition("=")
        if equals and not line.lstrip().startswith("#"):
            found[name.strip()] = value.strip()
    yield from found.items()


def processes() -> Pairs:
    """Processes that wait in the kernel now and two seconds later, zombies, and the daemons that have no unit."""
    first = dict(_states())
    time.sleep(2)
    total, zombies, daemons = 0, 0, 0
    for pid, (name, state, ticks) in _states():
        total += 1
        zombies += state == "Z"
        daemons += name == "nvlsm"
        if state == "D" and first.get(pid) == (name, state, ticks):
            yield f"waiting/{pid}", name
    yield "total", str(total)
    yield "zombies", str(zombies)
    yield "nvlsm", str(daemons)
    yield "pid_max", text("/proc/sys/kernel/pid_max")


def _states() -> Iterator[tuple[str, tuple[str, str, str]]]:
    for pid in os.listdir("/proc"):
        if pid.isdigit():
            found = said(f"/proc/{pid}/stat")
            if found and ")" in found:
                head, _, rest = found.rpartition(")")
                words = rest.split()
                yield pid, (head.partition("(")[2], words[0], words[11] + words[12])  # state, utime and stime


def mount(path: str) -> Pairs:
    """One file system; here, and not for all at once, because a server that is gone hangs the one that asks."""
    mounted, kind = "0", "none"
    with open("/proc/self/mountinfo", encoding="utf-8", errors="replace") as file:
        for line in file:
            left, _, right = line.partition(" - ")
            if left.split()[4] == path:
                mounted, kind = "1", right.split()[0]
    found = os.statvfs(path)
    yield "path", path
    yield "mounted", mounted
    yield "type", kind
    yield "blocks", str(found.f_blocks)
    yield "free", str(found.f_bavail)
    yield "files", str(found.f_files)
    yield "files_free", str(found.f_favail)
    yield "writable", "0" if found.f_flag & os.ST_RDONLY else "1"


def write(path: str) -> Pairs:
    """A small file, written, synced and removed."""
    began = time.monotonic()
    name = f"{path}/.bedplate-health.{os.getpid()}"
    handle = os.open(name, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
    try:
        os.write(handle, b"bedplate health\n" * 256)
        os.fsync(handle)
    finally:
        os.close(handle)
        os.unlink(name)
    yield "path", path
    yield "ms", str(int((time.monotonic() - began) * 1000))


def resolve(node: str) -> Pairs:
    """The node's own name: to an address, and back."""
    import socket  # noqa: PLC0415  only this child needs it

    began = time.monotonic()
    try:
        addresses = sorted({str(entry[4][0]) for entry in socket.getaddrinfo(node, None, proto=socket.IPPROTO_TCP)})
    except OSError as fault:
        yield "unresolved", str(fault)
        addresses = []
    for address in addresses:
        try:
            back = socket.gethostbyaddr(address)[0]
        except OSError as fault:
            back = f"? {fault}"
        yield f"address/{address}", back
    yield "ms", str(int((time.monotonic() - began) * 1000))


def munge() -> Pairs:
    """A credential made and read again by the node itself."""
    import subprocess  # noqa: PLC0415

    made = subprocess.run(["munge", "-n"], capture_output=True, check=False)
    if made.returncode:
        yield "status", f"munge ended with {made.returncode}: {made.stderr.decode(errors='replace').strip()}"
        return
    read = subprocess.run(["unmunge"], input=made.stdout, capture_output=True, check=False)
    status = re.search(r"^STATUS:\s+(.*)$", read.stdout.decode(errors="replace"), re.MULTILINE)
    yield "status", status[1].strip() if status else f"unmunge ended with {read.returncode} and no status"


SITE_CHECKS = "/etc/slurm/health.d"
SITE_S = 10.0  # all of them together


def site() -> Pairs:
    """What the site's own checks of a node say: exit code, and the first line; one after the other, in one time."""
    end = time.monotonic() + SITE_S
    yield "checks", SITE_CHECKS
    paths = [(name, f"{SITE_CHECKS}/{name}") for name in names(SITE_CHECKS) if not name.startswith(".")]
    programs = [(name, path) for name, path in paths if os.path.isfile(path) and os.access(path, os.X_OK)]
    if not programs:
        return
    import signal  # noqa: PLC0415
    import subprocess  # noqa: PLC0415  15 ms, for those who have something to start

    for name, path in programs:
        left = max(end - time.monotonic(), 0.1)
        try:
            with subprocess.Popen(
                [path],
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            ) as program:
                try:
                    out, _ = program.communicate(timeout=left)
                    code = str(abs(program.returncode))
                except subprocess.TimeoutExpired:
                    os.killpg(program.pid, signal.SIGKILL)
                    out, code = f"no end after {left:.0f} s".encode(), "late"
        except OSError as fault:
            out, code = f"cannot be started: {fault.strerror}".encode(), "late"
        lines = out.decode("utf-8", "replace").strip().splitlines() or [""]
        yield f"site/{name}", f"{code} {''.join(letter if letter.isprintable() else '?' for letter in lines[0][:200])}"


HISTORY = "/run/bedplate-health/history"


def history() -> Pairs:
    """Counters that earlier runs of this boot wrote down; nothing where none did."""
    for number, line in enumerate((said(HISTORY) or "").splitlines()):
        words = line.split()
        if len(words) < 2:  # noqa: PLR2004  boot and uptime, at least
            continue
        yield f"{number}/boot_id", words[0]
        yield f"{number}/uptime_s", words[1]
        for word in words[2:]:
            key, _, value = word.partition("=")
            yield f"{number}/count/{key}", value


def nvlsm_log() -> Pairs:
    """The lines with errors at the end of the NVLink subnet manager's log."""
    path = "/var/log/nvlsm.log"
    try:
        with open(path, "rb") as file:
            file.seek(max(0, file.seek(0, 2) - SMALL))
            lines = file.read().decode("utf-8", "replace").splitlines()
    except OSError as fault:
        yield "readable", "0"
        yield "why", f"{path}: {fault.strerror}"
        return
    yield "readable", "1"
    for number, line in enumerate(line for line in lines if re.search(r"\bERR\b", line)):
        yield f"error/{number}", "".join(letter if " " <= letter <= "~" else "?" for letter in line[:300])


def nvme_document() -> str:
    """`nvme smart-log` of every drive, in one document; a drive that does not answer is no number in it."""
    import json  # noqa: PLC0415
    import subprocess  # noqa: PLC0415

    drives: dict[str, object] = {}
    for name in names("/dev"):
        if re.fullmatch(r"nvme[0-9]+", name):
            done = subprocess.run(
                ["nvme", "smart-log", f"/dev/{name}", "-o", "json"],
                capture_output=True, check=False,
            )  # fmt: skip
            try:
                drives[name] = json.loads(done.stdout)
            except ValueError:
                drives[name] = f"nvme ended with {done.returncode}"
    return json.dumps({"drives": drives}) + "\n"


def step_text(node: str, gpus: str) -> str:
    """What each task of a job step sees, one GPU asked for each."""
    import subprocess  # noqa: PLC0415

    done = subprocess.run(
        ["srun", "--label", "-w", node, "-N1", f"--ntasks={gpus}", "--gpus-per-task=1", "nvidia-smi", "-L"],
        stdout=subprocess.PIPE, check=True, text=True,
    )  # fmt: skip
    return f"{done.stdout}tasks {gpus}\n"


TEXTS = {"nvme": nvme_document, "step": step_text}
LISTINGS = {
    "pci": pci, "gpu_files": gpu_files, "modules": modules, "acs": acs, "host": host, "infiniband": infiniband,
    "processes": processes, "mount": mount, "write": write, "resolve": resolve, "munge": munge, "nvlsm_log": nvlsm_log,
    "history": history, "nccl_conf": nccl_conf, "site": site,
}  # fmt: skip


def read(name: str, arguments: tuple[str, ...]) -> str:
    """What a reader says, as its parser wants it."""
    if name in TEXTS:
        return str(TEXTS[name](*arguments))  # type: ignore[operator]  # each has its own arguments
    return listing(LISTINGS[name](*arguments))  # type: ignore[operator]
