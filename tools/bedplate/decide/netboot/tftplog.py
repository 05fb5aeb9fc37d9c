"""What dnsmasq's log says of TFTP: which machine fetched GRUB's menu, which is what each one that comes by GRUB does.

Nov 30 02:51:12 dnsmasq-tftp[71]: sent /var/lib/bedplate/netboot/tftp/grub/grub.cfg to 10.20.1.1
"""

import re

MENU = re.compile(r"dnsmasq-tftp\[\d+\]: sent \S*/grub/grub\.cfg to (\d{1,3}(?:\.\d{1,3}){3})$")


def menu(line: str) -> str | None:
    """The address that was sent GRUB's menu; None where a line says something else."""
    found = MENU.search(line.rstrip())
    return found[1] if found else None
