"""What a machine is made of, against what fleet and model say; differences are named before anything is wiped.

autoinstall/node.py has the same rules for the machine itself, which may not reach us; a test holds the two together.
"""

import re
from collections.abc import Iterator, Mapping
from typing import Any

MOST_DISKS = 32  # in a message
# Names that people give to data, not those that partitioning tools give to a type ("Basic data partition").
DATA_LABEL = re.compile(r"data([^a-z].*)?|.*[-_]data([-_].*)?", re.IGNORECASE | re.DOTALL)


def differences(expected: Mapping[str, Any], found: object) -> list[str]:
    """What an inventory has other than the fleet says; an inventory that cannot be read is a difference."""
    if not isinstance(found, dict) or not all(isinstance(found.get(key), list) for key in ("disks", "nics")):
        return ["the inventory cannot be read"]
    dmi = found.get("dmi")
    dmi = dmi if isinstance(dmi, dict) else {}
    serial = dmi.get("product_serial")
    wrong = []
    if serial != expected["serial"]:
        wrong.append(f"serial number {str(serial)[:64]!r}, expected {expected['serial']!r}")
    disks = [disk for disk in found["disks"] if isinstance(disk, dict)]
    wrong += _disks(expected, disks)
    nics = [nic for nic in found["nics"] if isinstance(nic, dict)]
    macs = {_mac(nic.get("mac")) for nic in nics}
    wrong += [f"no interface with MAC {mac}" for mac in expected["macs"] if mac not in macs]
    silent = {_mac(nic.get("mac")) for nic in nics if nic.get("carrier") == "0"}
    wrong += [
        f"interface with MAC {mac} has no link: no cable, or one in another port"
        for mac in expected["macs"]
        if mac in silent
    ]
    wrong += [f"no fabric adapter with MAC {mac}" for mac in expected.get("nic_macs") or () if mac not in macs]
    if expected.get("disks") is not None and len(disks) != expected["disks"]:
        wrong.append(f"{len(disks)} disks, expected {expected['disks']}")
    firmware, known = dmi.get("bios_version"), expected.get("bios_versions") or ()
    if known and firmware not in known:
        wrong.append(f"firmware {str(firmware)[:64]!r}, its model's list has {', '.join(known)}")
    bmc = found.get("bmc")
    bmc = bmc if isinstance(bmc, dict) else {}
    address, firmware, known = bmc.get("address"), bmc.get("firmware"), expected.get("bmc_versions") or ()
    if expected.get("bmc_address") and address and address != expected["bmc_address"]:
        wrong.append(f"BMC address {str(address)[:40]}, expected {expected['bmc_address']}")
    if known and firmware and firmware not in known:
        wrong.append(f"firmware of the BMC {str(firmware)[:64]!r}, its model's list has {', '.join(known)}")
    return wrong


def _disks(expected: Mapping[str, Any], disks: list[dict[str, Any]]) -> Iterator[str]:
    """Disks that are not those of the fleet, or that are and are not wiped all the same.

    A data disk that is named to be wiped is expected to hold data; nothing else may, and nothing may be mounted.
    """
    data = expected.get("data_disks") or {"serials": (), "wipe": False}
    for what, serials in (("boot", expected["boot_disk_serials"]), ("data", data["serials"])):
        for wanted in serials:
            fits = [disk for disk in disks if wanted in str(disk.get("serial") or "")]
            if len(fits) != 1:
                there = ", ".join(
                    f"{str(disk.get('name'))[:32]} {str(disk.get('serial') or 'without one')[:64]}"
                    for disk in (fits or disks)[:MOST_DISKS]
                )
                yield f"{what} disk {wanted}: {len(fits)} disks have that serial number (there: {there or 'none'})"
            for disk in fits if what == "boot" or data["wipe"] else ():
                column = "boot_disk_serials" if what == "boot" else None
                yield from (f"{what} disk {wanted} {why}" for why in _in_use(disk, column))
    named = (*expected["boot_disk_serials"], *data["serials"])
    for disk in disks if data["wipe"] else ():
        serial = str(disk.get("serial") or "")
        if not any(wanted in serial for wanted in named):
            what = f"disk {serial[:64] or str(disk.get('name'))[:32]}, which nodes.csv does not name,"
            yield from (f"{what} {why}" for why in _in_use(disk, "data_disk_serials"))


def _in_use(disk: Mapping[str, Any], column: str | None) -> Iterator[str]:
    """Why a disk is not wiped, or its neighbours are not: data by its label, or mounted; column: where it was named.

    None: it may hold data, which is asked to be wiped.
    """
    parts: list[Any] = [disk]
    while parts:
        part = parts.pop(0)
        if not isinstance(part, dict):
            continue
        name = str(part.get("name"))[:32]
        for label in (part.get("label"), part.get("partlabel")):
            if column and isinstance(label, str) and DATA_LABEL.fullmatch(label):
                yield f"holds data: {name} has the label {label[:64]!r} (correct {column}, or wipe it by hand)"
        if part.get("mountpoint"):
            yield f"is in use: {name} is mounted at {str(part['mountpoint'])[:64]}"
        children = part.get("children")
        parts += children if isinstance(children, list) else []


def foreign(node: str, found: object, of_mac: Mapping[str, str], of_disk: Mapping[str, str]) -> list[str]:
    """Parts that the fleet says are of another machine; of_mac, of_disk: the owner of a MAC, of a disk's serial.

    Only the boot server knows the others; the machine hears it by the answer to its inventory.
    """
    wrong = []
    for kind, key, owners in (("nics", "mac", of_mac), ("disks", "serial", of_disk)):
        parts = found.get(kind) if isinstance(found, dict) else None
        for part in parts if isinstance(parts, list) else ():
            said = part.get(key) if isinstance(part, dict) else None
            if not isinstance(said, str):
                continue
            said = _mac(said) if key == "mac" else said.strip()
            if (owner := owners.get(said, node)) != node:
                what, part_ = ("MAC", "adapter") if key == "mac" else ("disk", "disk")
                wrong.append(f"{what} {said} is of {owner}: a swapped {part_}")
    return wrong


def unknown(expected: Mapping[str, Any], found: object) -> list[str]:
    """What was expected and could not be compared, because the machine does not say it."""
    found = found if isinstance(found, dict) else {}
    bmc, nics = found.get("bmc"), found.get("nics")
    blind = []
    bmc = bmc if isinstance(bmc, dict) else {}
    for said, asked, what in (("address", "bmc_address", "address"), ("firmware", "bmc_versions", "firmware")):
        if expected.get(asked) and not bmc.get(said):
            blind.append(f"BMC {what}: the live system has no ipmitool, or no BMC")
    known = {*expected["macs"], *(expected.get("nic_macs") or ())}
    others = [_mac(nic.get("mac")) for nic in nics if isinstance(nic, dict)] if isinstance(nics, list) else []
    if others := [mac[:40] for mac in others if mac not in known]:
        blind.append(f"{len(others)} interfaces that nodes.csv does not have: {', '.join(others[:16])}")
    return blind


def _mac(said: object) -> str:
    """A MAC as nodes.csv has it; of an InfiniBand port, which has 20 bytes, out of its GUID, the last eight.

    The GUID of NVIDIA's adapters is their MAC around two bytes: 98:03:9b 03:00 xx:yy:zz.
    """
    text = str(said).lower()
    parts = text.split(":")
    return ":".join((*parts[12:15], *parts[17:20])) if len(parts) == 20 else text  # noqa: PLR2004
