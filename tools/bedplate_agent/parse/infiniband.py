"""InfiniBand devices as sysfs has them, without the bridges of the NVSwitches.

An HGX B200 shows four more mlx5 devices: functions of the ConnectX-7 bridges that manage the NVSwitches (VPD
SMDL=SW_MNG). They are no adapters of a fabric: siderolabs/extensions#893, leptonai/gpud#1164.
"""

from __future__ import annotations

from typing import NamedTuple

from bedplate_agent.parse.listing import Listing
from bedplate_agent.parse.listing import parse as parse_listing
from bedplate_agent.parse.text import NotUnderstood, integer, shown


class Device(NamedTuple):
    name: str
    values: Listing

    def count(self, counter: str) -> int:
        return integer(self.values.need(f"ports/1/counters/{counter}"), f"{self.name} {counter}")


class Devices(NamedTuple):
    """compute: InfiniBand adapters; bridges: management functions of NVSwitches; other: RoCE and Ethernet."""

    compute: list[Device]
    bridges: list[Device]
    other: list[Device]


def parse(text: str) -> Devices:
    listing = parse_listing(text)
    found = Devices([], [], [])
    for name in listing.names():
        device = Device(name, Listing(listing.under(name)))
        bridge = device.values.need("nvswitch_management")
        if bridge not in ("0", "1", "unknown"):
            raise NotUnderstood(f"{name}: nvswitch_management is {shown(bridge)}")
        if bridge == "unknown":
            raise NotUnderstood(f"{name}: its VPD could not be read, so whether it manages an NVSwitch is not known")
        layer = device.values.need("ports/1/link_layer")
        if layer not in ("InfiniBand", "Ethernet"):
            raise NotUnderstood(f"{name}: link_layer is {shown(layer)}")
        if bridge == "1":
            found.bridges.append(device)
        elif layer == "InfiniBand":
            found.compute.append(device)
        else:
            found.other.append(device)
    return found
