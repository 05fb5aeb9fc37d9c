#!/usr/bin/python3
"""What a machine says of itself while it is installed. Runs in the live system, with its Python and nothing else.

node inventory   what it is made of, compared with what was expected, and told to the boot server; ends with 1 when
                 anything differs, when the boot server says so, or when it cannot be told: then nothing is wiped.
node installed   the last word before the machine starts again; ends with 1 when it cannot be told: the boot server would
                 take the machine for one that comes back without having been installed.
node logs        the installer's logs and crash files, as one archive, to the boot server.
"""

import glob
import io
import json
import os
import subprocess
import sys
import tarfile
import time
import urllib.error
import urllib.request

EXPECTED = "/run/bedplate/expected.json"
LOGS = ("/var/log/installer", "/var/crash", "/var/log/cloud-init.log", "/var/log/cloud-init-output.log")
MOST_LOG_BYTES = 64 << 20
TRIES, PAUSE_S, DEADLINE_S = 6, 5, 60


def read(path):
    try:
        with open(path, errors="replace") as file:
            return file.read().strip()
    except OSError:
        return None


def lsblk():
    columns = "NAME,SERIAL,WWN,MODEL,SIZE,TYPE,TRAN,LABEL,PARTLABEL,MOUNTPOINT"
    said = subprocess.run(["lsblk", "--json", "--bytes", "--output", columns], stdout=subprocess.PIPE, check=True)
    return json.loads(said.stdout.decode())["blockdevices"]


def inventory():
    dmi = {path.rpartition("/")[2]: read(path) for path in sorted(glob.glob("/sys/class/dmi/id/*")) if os.path.isfile(path)}
    nics = []
    for path in sorted(glob.glob("/sys/class/net/*")):
        if os.path.exists(path + "/device"):
            nics.append(
                {
                    "name": path.rpartition("/")[2], "mac": read(path + "/address"), "carrier": read(path + "/carrier"),
                    "driver": os.path.basename(os.path.realpath(path + "/device/driver")),
                    "pci": os.path.basename(os.path.realpath(path + "/device")),
                }
            )
    return {"dmi": dmi, "disks": [disk for disk in lsblk() if disk.get("type") == "disk"], "nics": nics, "secure_boot": secure_boot()}


def secure_boot():
    for path in glob.glob("/sys/firmware/efi/efivars/SecureBoot-*"):
        try:
            with open(path, "rb") as file:
                return file.read()[-1:] == b"\1"
        except OSError:
            return None
    return False if os.path.isdir("/sys/firmware/efi") else None


def differences(expected, found):
    """What would be wiped, or booted, and is not what the fleet says."""
    serial = found["dmi"].get("product_serial")
    if serial != expected["serial"]:
        yield "serial number {!r}, expected {!r}".format(serial, expected["serial"])
    for wanted in expected["boot_disk_serials"]:
        fits = [disk["name"] for disk in found["disks"] if wanted in (disk.get("serial") or "")]
        if len(fits) != 1:
            yield "boot disk {}: {} disks have that serial number ({})".format(wanted, len(fits), " ".join(fits) or "none")
    macs = {nic["mac"] for nic in found["nics"]}
    for mac in expected["macs"]:
        if mac not in macs:
            yield "no interface with MAC {}".format(mac)
    for what, there in (("boot_disks", len(expected["boot_disk_serials"])), ("disks", len(found["disks"]))):
        if expected.get(what) is not None and expected[what] != there:
            yield "{} {}, expected {}".format(there, what, expected[what])


def send(url, data, kind, method="POST"):
    """Status and text of the answer; tried again when nobody answers."""
    for left in reversed(range(TRIES)):
        request = urllib.request.Request(url, data, {"Content-Type": kind}, method=method)
        try:
            with urllib.request.urlopen(request, timeout=DEADLINE_S) as answer:
                return answer.status, answer.read().decode(errors="replace")
        except urllib.error.HTTPError as fault:
            return fault.code, fault.read().decode(errors="replace")
        except OSError as fault:
            said = str(fault)
        if left:
            time.sleep(PAUSE_S)
    return 0, said


def tell_inventory(expected):
    found = inventory()
    wrong = list(differences(expected, found))
    body = json.dumps({"node": expected["node"], "found": found, "differences": wrong}).encode()
    status, said = send(expected["url"] + "/inventory/" + expected["path"], body, "application/json")
    if status != 200:
        wrong.append("the boot server answered {}: {}".format(status or "nothing", said[:2000]))
    for line in wrong:
        print("bedplate: STOPPED before anything was wiped: " + line, file=sys.stderr)
    return 1 if wrong else 0


def tell_logs(expected):
    archive = io.BytesIO()
    with tarfile.open(fileobj=archive, mode="w:gz") as tar:
        for path in LOGS:
            if os.path.exists(path):
                tar.add(path, recursive=True)
    data = archive.getvalue()
    if len(data) > MOST_LOG_BYTES:
        print("bedplate: {} bytes of logs, not sent".format(len(data)), file=sys.stderr)
        return 0
    status, said = send(expected["url"] + "/upload/" + expected["path"] + "/installer-logs.tar.gz", data, "application/gzip", "PUT")
    if status not in (200, 201):
        print("bedplate: logs not taken: {} {}".format(status, said[:200]), file=sys.stderr)
    return 0  # logs that nobody took are no reason to end an installation


def tell_installed(expected):
    report = {"name": "bedplate/installed", "event_type": "finish", "result": "SUCCESS", "level": "INFO", "origin": "bedplate"}
    status, said = send(expected["url"] + "/report/" + expected["path"], json.dumps(report).encode(), "application/json")
    if status != 200:
        print("bedplate: the boot server answered {}: {}".format(status or "nothing", said[:2000]), file=sys.stderr)
    return 0 if status == 200 else 1


if __name__ == "__main__":
    with open(EXPECTED) as file:
        given = json.load(file)
    sys.exit({"inventory": tell_inventory, "installed": tell_installed, "logs": tell_logs}[sys.argv[1]](given))
