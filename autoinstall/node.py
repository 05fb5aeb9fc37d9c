"""What a machine says of itself while it is installed: the live system's Python, and nothing else.

node inventory   what it is made of, compared with what was expected, and told to the boot server; ends with 1 when
                 anything differs, when the boot server says so, or when it cannot be told: then nothing is wiped.
node installed   the last word before the machine starts again; ends with 1 when it cannot be told: the boot server
                 would take the machine for one that comes back without having been installed.
node first-boot  in the installed system: how cloud-init ended, and whether the data disks are mounted; then the
                 token's last use is over, and it is removed.
node logs        the installer's logs, and apart from them its crash files, as archives to the boot server.
"""

# ruff: noqa: INP001  a program by itself

import io
import json
import re
import shutil
import subprocess
import sys
import tarfile
import time
import urllib.error
import urllib.request
from collections.abc import Iterable, Iterator
from http import HTTPStatus
from pathlib import Path
from typing import Any

EXPECTED = Path("/run/bedplate/expected.json")
FIRST_BOOT = Path("/var/lib/bedplate/first-boot")
CLOUD_INIT = Path("/run/cloud-init")
FIRST_BOOT_S = 3600  # until a first boot that does not end is told as one
BY_UUID = Path("/dev/disk/by-uuid")
MOUNTS_S = 120  # until data disks that are not mounted are told: systemd waits 90 s for a device
LOGS = (
    "/var/log/installer", "/run/subiquity/cloud.autoinstall.yaml", "/var/log/cloud-init.log",
    "/var/log/cloud-init-output.log",
)  # fmt: skip
CRASHES = ("/var/crash",)  # apart: one crash file may be larger than all that the boot server takes
MOST_LOG_BYTES = 64 << 20
TRIES, PAUSE_S, DEADLINE_S = 6, 5, 60
# Names that people give to data, not those that partitioning tools give to a type ("Basic data partition").
DATA_LABEL = re.compile(r"data([^a-z].*)?|.*[-_]data([-_].*)?", re.IGNORECASE | re.DOTALL)
PASSWORD_HASH = re.compile(rb"\$(?:[1-9]|2[abxy]|y|gy|7|sha1)\$[./A-Za-z0-9=,$-]{8,}")  # crypt(5)
COLUMNS = "NAME,SERIAL,WWN,MODEL,SIZE,TYPE,TRAN,LABEL,PARTLABEL,MOUNTPOINT"


def say(line: str) -> None:
    sys.stderr.write(f"bedplate: {line}\n")


def read(path: Path) -> str | None:
    try:
        return path.read_text(errors="replace").strip()
    except OSError:
        return None


def lsblk() -> list[dict[str, Any]]:
    said = subprocess.run(["lsblk", "--json", "--bytes", "--output", COLUMNS], stdout=subprocess.PIPE, check=True)
    devices: list[dict[str, Any]] = json.loads(said.stdout)["blockdevices"]
    return devices


def own(disk: dict[str, Any]) -> bool:
    """Whether a block device is a disk of this machine: no zram, no network disk, no medium that the BMC shows."""
    named = re.match(r"(sd|nvme|vd|hd)", str(disk.get("name")))
    return disk.get("type") == "disk" and named is not None and disk.get("tran") != "usb"


def inventory() -> dict[str, Any]:
    nics = [
        {
            "name": path.name,
            "mac": read(path / "address"),
            "carrier": read(path / "carrier"),
            "driver": (path / "device/driver").resolve().name,
            "pci": (path / "device").resolve().name,
        }
        for path in sorted(Path("/sys/class/net").glob("*"))
        if (path / "device").exists()
    ]
    return {
        "dmi": {path.name: read(path) for path in sorted(Path("/sys/class/dmi/id").glob("*")) if path.is_file()},
        "disks": [disk for disk in lsblk() if own(disk)],
        "nics": nics,
        "secure_boot": secure_boot(),
        "bmc": bmc(),
    }


def bmc() -> dict[str, str] | None:
    """Address, MAC and firmware of the BMC, where the live system can ask it; None: nobody knows."""
    if not shutil.which("ipmitool"):
        return None
    told: dict[str, str] = {}
    for question in (["lan", "print"], ["mc", "info"]):
        try:
            said = subprocess.run(["ipmitool", *question], stdout=subprocess.PIPE, check=True, timeout=DEADLINE_S)
        except (OSError, subprocess.SubprocessError):
            continue
        rows = [line.partition(":") for line in said.stdout.decode(errors="replace").splitlines()]
        told.update({key.strip(): value.strip() for key, _, value in rows})
    asked = {"address": "IP Address", "mac": "MAC Address", "firmware": "Firmware Revision"}
    return {name: told.get(key, "").lower() for name, key in asked.items()} if told else None


def secure_boot() -> bool | None:
    if not Path("/sys/firmware/efi").is_dir():
        return False
    for path in Path("/sys/firmware/efi/efivars").glob("SecureBoot-*"):
        try:
            return path.read_bytes()[-1:] == b"\1"
        except OSError:
            return None
    return None


def differences(expected: dict[str, Any], found: dict[str, Any]) -> Iterator[str]:  # noqa: C901  a list of cases
    """What would be wiped, or booted, and is not what the fleet says."""
    serial = found["dmi"].get("product_serial")
    if serial != expected["serial"]:
        yield f"serial number {str(serial)[:64]!r}, expected {expected['serial']!r}"
    yield from disk_differences(expected, found["disks"])
    macs = {port(nic["mac"]) for nic in found["nics"]}
    for mac in expected["macs"]:
        if mac not in macs:
            yield f"no interface with MAC {mac}"
    silent = {port(nic["mac"]) for nic in found["nics"] if nic.get("carrier") == "0"}
    for mac in expected["macs"]:
        if mac in silent:
            yield f"interface with MAC {mac} has no link: no cable, or one in another port"
    for mac in expected.get("nic_macs") or ():
        if mac not in macs:
            yield f"no fabric adapter with MAC {mac}"
    if expected["disks"] is not None and len(found["disks"]) != expected["disks"]:
        yield f"{len(found['disks'])} disks, expected {expected['disks']}"
    firmware, known = found["dmi"].get("bios_version"), expected.get("bios_versions") or ()
    if known and firmware not in known:
        yield f"firmware {str(firmware)[:64]!r}, its model's list has {', '.join(known)}"
    bmc = found.get("bmc") or {}
    address, firmware, known = bmc.get("address"), bmc.get("firmware"), expected.get("bmc_versions") or ()
    if expected.get("bmc_address") and address and address != expected["bmc_address"]:
        yield f"BMC address {str(address)[:40]}, expected {expected['bmc_address']}"
    if known and firmware and firmware not in known:
        yield f"firmware of the BMC {str(firmware)[:64]!r}, its model's list has {', '.join(known)}"


def disk_differences(expected: dict[str, Any], disks: list[dict[str, Any]]) -> Iterator[str]:
    """Disks that are not those of the fleet, or that are and are not wiped all the same."""
    data = expected.get("data_disks") or {"serials": (), "wipe": False}
    for what, serials in (("boot", expected["boot_disk_serials"]), ("data", data["serials"])):
        for wanted in serials:
            fits = [disk for disk in disks if wanted in (disk.get("serial") or "")]
            if len(fits) != 1:
                there = ", ".join(f"{disk['name']} {disk.get('serial') or 'without one'}" for disk in fits or disks)
                yield f"{what} disk {wanted}: {len(fits)} disks have that serial number (there: {there or 'none'})"
            for disk in fits if what == "boot" or data["wipe"] else ():
                for why in in_use(disk, "boot_disk_serials" if what == "boot" else None):
                    yield f"{what} disk {wanted} {why}"
    named = (*expected["boot_disk_serials"], *data["serials"])
    for disk in disks if data["wipe"] else ():
        serial = disk.get("serial") or ""
        if not any(wanted in serial for wanted in named):
            for why in in_use(disk, "data_disk_serials"):
                yield f"disk {serial[:64] or disk['name']}, which nodes.csv does not name, {why}"


def in_use(disk: dict[str, Any], column: str | None) -> Iterator[str]:
    """Why a disk is not wiped, or its neighbours are not: data by its label, or mounted; column: where it was named.

    None: it may hold data, which is asked to be wiped.
    """
    parts = [disk]
    while parts:
        part = parts.pop(0)
        for label in (part.get("label"), part.get("partlabel")):
            if column and label and DATA_LABEL.fullmatch(label):
                name = part["name"]
                yield f"holds data: {name} has the label {label[:64]!r} (correct {column}, or wipe it by hand)"
        if part.get("mountpoint"):
            yield f"is in use: {part['name']} is mounted at {part['mountpoint'][:64]}"
        parts += part.get("children") or []


def port(mac: str | None) -> str:
    """A MAC as the fleet has it; of an InfiniBand port, which has 20 bytes, out of its GUID, the last eight."""
    parts = str(mac).lower().split(":")
    return ":".join((*parts[12:15], *parts[17:20])) if len(parts) == 20 else ":".join(parts)  # noqa: PLR2004


def send(url: str, data: bytes, kind: str, method: str = "POST") -> tuple[int, str]:
    """Status and text of the answer, 0 when nobody answers, after some tries."""
    said = ""
    for left in reversed(range(TRIES)):
        request = urllib.request.Request(url, data, {"Content-Type": kind}, method=method)  # noqa: S310  the seed's
        try:
            with urllib.request.urlopen(request, timeout=DEADLINE_S) as answer:  # noqa: S310  the seed's
                return answer.status, answer.read().decode(errors="replace")
        except urllib.error.HTTPError as fault:
            if fault.code < HTTPStatus.INTERNAL_SERVER_ERROR or not left:
                return fault.code, fault.read().decode(errors="replace")
        except OSError as fault:
            said = str(fault)
        if left:
            time.sleep(PAUSE_S)
    return 0, said


def tell_inventory(expected: dict[str, Any]) -> int:
    found = inventory()
    wrong = list(differences(expected, found))
    body = json.dumps({"node": expected["node"], "found": found, "differences": wrong}).encode()
    status, said = send(f"{expected['url']}/inventory/{expected['path']}", body, "application/json")
    if status != HTTPStatus.OK:
        wrong.append(f"the boot server answered {status or 'nothing'}: {said[:2000]}")
    for line in wrong:
        say(f"STOPPED before anything was wiped: {line}")
    return 1 if wrong else 0


def tell_installed(expected: dict[str, Any]) -> int:
    report = {"name": "bedplate/installed", "event_type": "finish", "result": "SUCCESS", "level": "INFO"}
    status, said = send(f"{expected['url']}/report/{expected['path']}", json.dumps(report).encode(), "application/json")
    if status != HTTPStatus.OK:
        say(f"the boot server answered {status or 'nothing'}: {said[:2000]}")
    return 0 if status == HTTPStatus.OK else 1


def first_boot() -> dict[str, Any]:
    """How cloud-init ended, from its own files; 22.4 has no recoverable errors, 23.4 and later have."""
    end = time.monotonic() + FIRST_BOOT_S
    while not (CLOUD_INIT / "result.json").exists():
        if time.monotonic() > end:
            return {"status": f"not ended after {FIRST_BOOT_S} s", "errors": [], "recoverable": []}
        time.sleep(1)
    try:
        errors = json.loads((CLOUD_INIT / "result.json").read_text())["v1"]["errors"]
        stages = json.loads((CLOUD_INIT / "status.json").read_text())["v1"]
    except (OSError, ValueError, KeyError, TypeError) as fault:
        return {"status": f"its files cannot be read: {fault!r}", "errors": [], "recoverable": []}
    recoverable = [
        f"{level}: {line}"
        for stage in stages.values()
        if isinstance(stage, dict)
        for level, lines in (stage.get("recoverable_errors") or {}).items()
        for line in lines
    ]
    return {"status": "error" if errors else "done", "errors": list(map(str, errors)), "recoverable": recoverable}


def unmounted(expected: dict[str, Any]) -> list[str]:
    """Data disks that are not mounted: a machine starts without them (nofail), and would not say so."""
    data = expected.get("data_disks") or {"volumes": [], "wipe": True}
    end = time.monotonic() + MOUNTS_S
    while away := [each for each in data["volumes"] if not Path(each["path"]).is_mount()]:
        if time.monotonic() > end:
            break
        time.sleep(1)
    wrong = []
    for each in away:
        why = f"the file system {each['uuid']} is there (systemctl --failed says why)"
        if not (BY_UUID / each["uuid"]).exists():
            remedy = "array and disks: lsblk -f" if data["wipe"] else "install once with wipe: true, which makes one"
            why = f"no file system {each['uuid']} ({remedy})"
        wrong.append(f"{each['path']} is not mounted: {why}")
    return wrong


def tell_first_boot(expected: dict[str, Any]) -> int:
    ended = first_boot()
    if wrong := unmounted(expected):
        ended |= {"status": "error", "errors": [*ended["errors"], *wrong]}
    body = json.dumps(ended).encode()
    status, said = send(f"{expected['url']}/finished/{expected['path']}", body, "application/json")
    if status == 0 or status >= HTTPStatus.INTERNAL_SERVER_ERROR:
        say(f"the boot server answered {status or 'nothing'}: {said[:2000]}")
        return 1  # the unit tries again
    if status != HTTPStatus.OK:
        say(f"not taken: {status} {said[:2000]}")
    shutil.rmtree(FIRST_BOOT, ignore_errors=True)  # the token opens nothing any more
    return 0


def archive(paths: Iterable[str], token: bytes = b"") -> bytes:
    """The files there as one archive, none: no bytes; what cannot be read is said, and left out."""
    tops = [path for path in map(Path, paths) if path.exists()]
    files = [path for top in tops for path in (sorted(top.rglob("*")) if top.is_dir() else [top]) if path.is_file()]
    data = io.BytesIO()
    with tarfile.open(fileobj=data, mode="w:gz") as tar:
        for path in files:
            try:
                content = path.read_bytes()  # whole first: a log that grows meanwhile would break the archive
            except OSError as fault:
                say(f"{path}: left out of the logs: {fault.strerror}")
                continue
            content = PASSWORD_HASH.sub(b"(password hash, left out)", content)  # logs are kept, and exported
            content = content.replace(token, b"(token, left out)") if token else content
            entry = tarfile.TarInfo(str(path).lstrip("/"))
            entry.size = len(content)
            tar.addfile(entry, io.BytesIO(content))
    return data.getvalue() if files else b""


def tell_logs(expected: dict[str, Any]) -> int:
    token = str(expected["path"]).partition("/")[2].encode()
    for name, paths in (("installer-logs.tar.gz", LOGS), ("installer-crashes.tar.gz", CRASHES)):
        data = archive(paths, token)
        if len(data) > MOST_LOG_BYTES:
            say(f"{name}: {len(data)} bytes, the boot server takes {MOST_LOG_BYTES}: not sent")
        elif data:
            status, said = send(f"{expected['url']}/upload/{expected['path']}/{name}", data, "application/gzip", "PUT")
            if status not in (HTTPStatus.OK, HTTPStatus.CREATED):
                say(f"{name}: not taken: {status or 'nobody answers'} {said[:200]}")
    return 0  # logs that nobody took are no reason to end an installation


COMMANDS = {
    "inventory": tell_inventory, "installed": tell_installed, "logs": tell_logs, "first-boot": tell_first_boot,
}  # fmt: skip

if __name__ == "__main__":
    place = FIRST_BOOT / "expected.json" if sys.argv[1] == "first-boot" else EXPECTED
    sys.exit(COMMANDS[sys.argv[1]](json.loads(place.read_text())))
