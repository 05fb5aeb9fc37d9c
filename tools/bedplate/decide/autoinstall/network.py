"""The network section: netplan version 2, as the installer and the installed system get it."""

import re
from ipaddress import ip_address, ip_interface
from typing import Any

from bedplate.decide.autoinstall.findings import Report
from bedplate.decide.autoinstall.shapes import (
    UNCHECKED,
    Either,
    Flag,
    Items,
    Keys,
    Names,
    Null,
    Number,
    Shape,
    Text,
    Told,
    word,
)  # fmt: skip
from bedplate.model.text import Path

INTERFACE_BYTES = 15  # IFNAMSIZ of Linux, with the NUL 16
_MAC = r"[0-9a-f]{2}(:[0-9a-f]{2}){5}"
_INTERFACE = r"[A-Za-z][A-Za-z0-9._-]*"


def _address(report: Report, path: Path, value: str) -> None:
    try:
        ip_interface(value)
    except ValueError:
        report.add("value", path, f'"{value[:60]}" is no address', "ADDRESS/LENGTH")
        return
    if "/" not in value:
        report.add("value", path, f'"{value}" has no length', f"for example {value}/24")


def _host(report: Report, path: Path, value: str) -> None:
    try:
        ip_address(value)
    except ValueError:
        report.add("value", path, f'"{value[:60]}" is no IP address')


def _destination(report: Report, path: Path, value: str) -> None:
    if value != "default":
        _address(report, path, value)


def _link(report: Report, path: Path, link: dict[str, Any]) -> None:
    """What holds for every kind of interface."""
    if link.get("dhcp4") is True and link.get("dhcp-identifier") != "mac":
        found = "DHCP without `dhcp-identifier: mac`"
        report.add(
            "dhcp-identifier", path, found, "add it: the installed system asks with a DUID, and gets another address"
        )
    addresses = link.get("addresses")
    servers = link.get("nameservers")
    named = servers.get("addresses") if isinstance(servers, dict) else None
    if addresses and not named and link.get("dhcp4") is not True:
        report.add("static-dns", path, "static addresses without name servers", "add nameservers.addresses")


def _ethernet(report: Report, path: Path, link: dict[str, Any]) -> None:
    match = link.get("match")
    if not isinstance(match, dict) or "macaddress" not in match:
        report.add(
            "nic-by-name", path, "an interface that is not matched by MAC", "match: {macaddress: …}, set-name: …"
        )
    elif "set-name" not in link:
        report.add("nic-by-name", path, "matched by MAC, without a set-name", "set-name: the name that others use")
    _link(report, path, link)


_MAC_TEXT = Text(_MAC, "six pairs of hexadecimal digits, lower case, with colons, in quotes")
_NAME = Text(_INTERFACE, "a name of an interface", longest=INTERFACE_BYTES)
_OVERRIDES = Keys(
    {
        "hostname": Text(), "route-metric": Number(0, 2**32 - 1), "send-hostname": Flag(), "use-dns": Flag(),
        "use-domains": Either(Flag(), Text()), "use-hostname": Flag(), "use-mtu": Flag(), "use-ntp": Flag(),
        "use-routes": Flag(),
    }
)  # fmt: skip
_ROUTE = Keys(
    {
        "to": Text(judge=_destination), "via": Text(judge=_host), "from": Text(judge=_host), "on-link": Flag(),
        "metric": Number(0, 2**32 - 1), "mtu": Number(68, 65535), "scope": word("global", "link", "host"),
        "table": Number(1, 2**32 - 1), "type": word("unicast", "unreachable", "blackhole", "prohibit", "throw"),
    },
    required=("to",),
)  # fmt: skip
_COMMON: dict[str, Shape] = {
    "renderer": word("networkd", "NetworkManager"),
    "dhcp4": Flag(), "dhcp6": Flag(), "dhcp-identifier": word("mac", "duid"),
    "dhcp4-overrides": _OVERRIDES, "dhcp6-overrides": _OVERRIDES,
    "accept-ra": Flag(), "ipv6-privacy": Flag(), "link-local": Items(word("ipv4", "ipv6")),
    "ignore-carrier": Flag(), "critical": Flag(), "optional": Flag(),
    "optional-addresses": Items(word("ipv4-ll", "ipv6-ra", "dhcp4", "dhcp6", "static")),
    "addresses": Items(Text(judge=_address)),
    "gateway4": Told("deprecated", "gateway4 is deprecated", 'routes: [{to: default, via: "…"}]'),
    "gateway6": Told("deprecated", "gateway6 is deprecated", 'routes: [{to: default, via: "…"}]'),
    "nameservers": Keys({"addresses": Items(Text(judge=_host)), "search": Items(Text())}),
    "macaddress": _MAC_TEXT, "mtu": Number(68, 65535), "routes": Items(_ROUTE), "routing-policy": UNCHECKED,
    "activation-mode": word("manual", "off"), "emit-lldp": Flag(),
}  # fmt: skip
_ETHERNET = Keys(
    _COMMON
    | {
        "match": Keys({"name": Text(), "macaddress": _MAC_TEXT, "driver": Text()}),
        "set-name": _NAME, "wakeonlan": Flag(), "receive-checksum-offload": Flag(),
        "transmit-checksum-offload": Flag(), "tcp-segmentation-offload": Flag(), "generic-segmentation-offload": Flag(),
        "generic-receive-offload": Flag(), "large-receive-offload": Flag(), "virtual-function-count": Number(0, 4096),
        "embedded-switch-mode": word("switchdev", "legacy"), "delay-virtual-functions-rebind": Flag(),
        "link": Text(), "auth": UNCHECKED, "openvswitch": UNCHECKED, "infiniband-mode": word("datagram", "connected"),
    },
    judge=_ethernet,
)  # fmt: skip
_TIME = Either(Number(), Text(r"[0-9]+(ms|s|us)?", "a time, for example 100"))
_BOND = Keys(
    _COMMON
    | {
        "interfaces": Items(Text(), least=1),
        "parameters": Keys(
            {
                "mode": word(
                    "balance-rr", "active-backup", "balance-xor", "broadcast", "802.3ad", "balance-tlb", "balance-alb"
                ),
                "lacp-rate": word("slow", "fast"), "mii-monitor-interval": _TIME, "min-links": Number(0, 64),
                "transmit-hash-policy": word("layer2", "layer3+4", "layer2+3", "encap2+3", "encap3+4", "vlan+srcmac"),
                "ad-select": word("stable", "bandwidth", "count"), "all-members-active": Flag(),
                "all-slaves-active": Told("deprecated", "all-slaves-active is deprecated", "all-members-active"),
                "arp-interval": _TIME, "arp-ip-targets": Items(Text(judge=_host)),
                "arp-validate": word("none", "active", "backup", "all"), "arp-all-targets": word("any", "all"),
                "up-delay": _TIME, "down-delay": _TIME, "fail-over-mac-policy": word("none", "active", "follow"),
                "gratuitous-arp": Number(0, 255), "packets-per-member": Number(0, 65535),
                "packets-per-slave": Told("deprecated", "packets-per-slave is deprecated", "packets-per-member"),
                "primary-reselect-policy": word("always", "better", "failure"), "resend-igmp": Number(0, 255),
                "learn-packet-interval": _TIME, "primary": Text(),
            }
        ),
    },
    required=("interfaces", "parameters"),
    judge=_link,
)  # fmt: skip
_VLAN = Keys(_COMMON | {"id": Number(0, 4094), "link": Text()}, required=("id", "link"), judge=_link)
_BRIDGE = Keys(
    _COMMON
    | {
        "interfaces": Items(Text()),
        "parameters": Keys(
            {
                "ageing-time": _TIME, "priority": Number(0, 65535), "forward-delay": _TIME, "hello-time": _TIME,
                "max-age": _TIME, "stp": Flag(), "port-priority": UNCHECKED, "path-cost": UNCHECKED,
            }
        ),
    },
    judge=_link,
)  # fmt: skip
_KINDS = ("ethernets", "bonds", "vlans", "bridges")


def _together(report: Report, path: Path, network: dict[str, Any]) -> None:  # noqa: C901  each line one rule
    """Names that refer to each other, and MACs that no two interfaces have."""
    links = [
        ((*path, kind, name), kind, name, link)
        for kind in _KINDS
        if isinstance(section := network.get(kind), dict)
        for name, link in section.items()
        if isinstance(link, dict)
    ]
    known: set[str] = set()
    macs: set[str] = set()
    for place, kind, name, link in links:
        if name in known:
            report.add("network", place, f'a second interface "{name}"', "one name, one interface")
        known.add(name)
        match = link.get("match")
        mac = match.get("macaddress") if isinstance(match, dict) else None
        if isinstance(mac, str):
            if mac in macs:
                report.add("network", place, f"a second interface with MAC {mac}", "one MAC, one interface")
            macs.add(mac)
        if kind != "ethernets" and len(name) > INTERFACE_BYTES:
            report.add("size", place, f'"{name}" is longer than {INTERFACE_BYTES} bytes', "shorten it")
    member_of: dict[str, str] = {}
    for place, kind, name, link in links:
        members = link.get("interfaces")
        for member in members if isinstance(members, list) else ():
            if not isinstance(member, str):
                continue
            if member not in known:
                report.add("network", (*place, "interfaces"), f'no interface "{member}"', "define it")
            if (owner := member_of.setdefault(member, name)) != name:
                found = f'"{member}" belongs to {owner} already'
                report.add("network", (*place, "interfaces"), found, "one bond or bridge for each")
        over = link.get("link")
        if kind == "vlans" and isinstance(over, str) and over not in known:
            report.add("network", (*place, "link"), f'no interface "{over}"', "define it")


_VERSION_2 = Keys(
    {
        "version": Number(2, 2), "renderer": word("networkd", "NetworkManager"),
        "ethernets": Names(_ETHERNET), "bonds": Names(_BOND), "vlans": Names(_VLAN), "bridges": Names(_BRIDGE),
        **dict.fromkeys(
            ("wifis", "modems", "tunnels", "vrfs", "nm-devices", "dummy-devices", "virtual-ethernets", "openvswitch"),
            UNCHECKED,
        ),
    },
    required=("version",),
    judge=_together,
)  # fmt: skip
_WRAPPED = Keys({"network": _VERSION_2}, required=("network",))


class Network:
    """Netplan version 2, by itself or below one more `network:`, as the installer takes both."""

    wanted = "a mapping"

    def fits(self, value: Any) -> bool:
        return isinstance(value, dict)

    def check(self, report: Report, path: Path, value: Any) -> None:
        (_WRAPPED if "network" in value else _VERSION_2).check(report, path, value)


NETWORK = Either(Network(), Null())
_PRIVATE_MODES = re.compile(r"0?[0-7]?600")


def netplan_mode(report: Report, path: Path, file: dict[str, Any]) -> None:
    """A file that a seed writes below /etc/netplan is for root alone."""
    target, mode = file.get("path"), file.get("permissions")
    if isinstance(target, str) and "/etc/netplan/" in target and not (
        isinstance(mode, str) and _PRIVATE_MODES.fullmatch(mode)
    ):  # fmt: skip
        report.add(
            "netplan-mode", path, f"{target[:60]} with permissions {mode or 'of everybody'}", 'permissions: "0600"'
        )
