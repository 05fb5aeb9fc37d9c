"""What a machine is made of, against what fleet and model say; differences are named before anything is wiped.

autoinstall/node.py has the same rules for the machine itself, which may not reach us; a test holds the two together.
"""

from collections.abc import Mapping
from typing import Any


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
    for wanted in expected["boot_disk_serials"]:
        fits = [str(disk.get("name"))[:32] for disk in disks if wanted in str(disk.get("serial") or "")]
        if len(fits) != 1:
            wrong.append(f"boot disk {wanted}: {len(fits)} disks have that serial number ({' '.join(fits) or 'none'})")
    macs = {_mac(nic.get("mac")) for nic in found["nics"] if isinstance(nic, dict)}
    wrong += [f"no interface with MAC {mac}" for mac in expected["macs"] if mac not in macs]
    wrong += [f"no fabric adapter with MAC {mac}" for mac in expected.get("nic_macs") or () if mac not in macs]
    if expected.get("disks") is not None and len(disks) != expected["disks"]:
        wrong.append(f"{len(disks)} disks, expected {expected['disks']}")
    firmware, known = dmi.get("bios_version"), expected.get("bios_versions") or ()
    if known and firmware not in known:
        wrong.append(f"firmware {str(firmware)[:64]!r}, its model's list has {', '.join(known)}")
    bmc = found.get("bmc")
    address = bmc.get("address") if isinstance(bmc, dict) else None
    if expected.get("bmc_address") and address and address != expected["bmc_address"]:
        wrong.append(f"BMC address {str(address)[:40]}, expected {expected['bmc_address']}")
    return wrong


def unknown(expected: Mapping[str, Any], found: object) -> list[str]:
    """What was expected and could not be compared, because the machine does not say it."""
    bmc = found.get("bmc") if isinstance(found, dict) else None
    told = isinstance(bmc, dict) and bmc.get("address")
    return (
        ["BMC address: the live system has no ipmitool, or no BMC"] if expected.get("bmc_address") and not told else []
    )


def _mac(said: object) -> str:
    """A MAC as nodes.csv has it; of an InfiniBand port, which has 20 bytes, out of its GUID, the last eight.

    The GUID of NVIDIA's adapters is their MAC around two bytes: 98:03:9b 03:00 xx:yy:zz.
    """
    text = str(said).lower()
    parts = text.split(":")
    return ":".join((*parts[12:15], *parts[17:20])) if len(parts) == 20 else text  # noqa: PLR2004
