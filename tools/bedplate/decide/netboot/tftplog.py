"""What dnsmasq's log says of TFTP: which machine fetched what. Each one that comes by GRUB fetches GRUB's menu.

Nov 30 02:51:12 dnsmasq-tftp[71]: sent /var/lib/bedplate/netboot/tftp/grub/grub.cfg to 10.20.1.1
"""

import re

MENU = "grub/grub.cfg"
_SENT = re.compile(r"dnsmasq-tftp\[\d+\]: sent \S*/([^/\s]+/[^/\s]+) to (\d{1,3}(?:\.\d{1,3}){3})$")


def sent(line: str) -> tuple[str, str] | None:
    """What was sent, as its folder and name, and the address it went to; None where a line says something else."""
    found = _SENT.search(line.rstrip())
    return (found[1], found[2]) if found else None
