"""Which loader a firmware is given, by what it says of itself: BIOS, UEFI by TFTP or HTTP, Secure Boot or not."""

import re

import pytest

from unit.netboot_sample import recipe

URL = "http://10.20.0.34:8080"
ASKS = [
    # option 93, the node, whether iPXE asks (its user class), what it is given
    (0, "cpu01", False, "undionly.kpxe"),
    (0, "cpu01", True, f"{URL}/boot.ipxe"),
    (7, "gpu001", False, "snponly.efi"),
    (9, "gpu001", False, "snponly.efi"),
    (7, "gpu001", True, f"{URL}/boot.ipxe"),
    (7, "ctl1", False, "bootx64.efi"),
    (9, "ctl1", False, "bootx64.efi"),
    (16, "gpu001", False, f"{URL}/files/snponly.efi"),
    (16, "gpu001", True, f"{URL}/boot.ipxe"),
    (16, "ctl1", False, f"{URL}/files/bootx64.efi"),
    (6, "gpu001", False, None),  # 32 bits: nothing here boots them
    (11, "gpu001", False, None),  # arm64
]


def tags(lines: list[str], arch: int, name: str, *, ipxe: bool) -> set[str]:
    """The tags that dnsmasq gives a question, by its configuration."""
    found = {
        match[1] for line in lines if (match := re.fullmatch(rf"dhcp-match=set:(\w+),option:client-arch,{arch}", line))
    }
    (host,) = (line for line in lines if line.startswith("dhcp-host=") and f",{name},infinite" in line)
    found |= set(re.findall(r"set:(\w+)", host))
    return found | ({"ipxe"} if ipxe and "dhcp-userclass=set:ipxe,iPXE" in lines else set())


@pytest.mark.parametrize(("arch", "name", "ipxe", "loader"), ASKS)
def test_a_firmware_is_given_its_loader_and_no_other(arch: int, name: str, ipxe: bool, loader: str | None) -> None:
    lines = recipe().common()["dnsmasq.conf"].splitlines()
    given = tags(lines, arch, name, ipxe=ipxe)
    fits = []
    for line in lines:
        if line.startswith("dhcp-boot="):
            *wanted, file = line.removeprefix("dhcp-boot=").split(",")
            words = [word.removeprefix("tag:") for word in wanted]
            if all(word[1:] not in given if word.startswith("!") else word in given for word in words):
                fits.append(file)
    assert fits == ([loader] if loader else [])


def test_a_firmware_that_boots_by_http_is_answered_as_one_or_it_would_not_listen() -> None:
    assert "dhcp-option-force=tag:efihttp,60,HTTPClient" in recipe().common()["dnsmasq.conf"].splitlines()


def test_a_machine_has_one_address_whichever_of_its_clients_asks_and_strangers_have_none() -> None:
    lines = recipe().common()["dnsmasq.conf"].splitlines()
    node = recipe().fleet.nodes["ctl1"]
    assert f"dhcp-host={node.boot_mac},{node.bond_macs[0]},set:shim,{node.address},ctl1,infinite" in lines
    assert "dhcp-ignore=tag:!known" in lines
    assert [line for line in lines if line.startswith("dhcp-range=")] == [
        "dhcp-range=10.20.0.0,static,255.255.248.0,12h"
    ], "no address that is not somebody's"


def test_a_machine_that_boots_by_bios_goes_on_to_its_disk_and_by_uefi_to_its_next_entry() -> None:
    for name in ("http/boot.ipxe", "http/local.ipxe"):
        assert (
            recipe()
            .common()[name]
            .endswith("iseq ${platform} pcbios && sanboot --no-describe --drive 0x80 ||\nexit 1\n")
        )
    assert recipe().common()["tftp/grub/grub.cfg"].endswith("\nexit 1\n")
