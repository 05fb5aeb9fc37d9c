"""The lab's network: a bridge in a namespace of its own, a namespace per host, nothing in the machine's own."""

import re
from collections.abc import Sequence

from bedplate.process import run
from lab.places import BRIDGE_ADDRESS, Places, address, mac


def namespaces(places: Places) -> list[str]:
    """The named network namespaces of this lab, those of a dead one included."""
    mine = re.compile(rf"{re.escape(places.name)}(-(ctl|svc|n\d+))?")
    listed = [line.split()[0] for line in run(["ip", "netns", "list"]).out.splitlines() if line.strip()]
    return [name for name in listed if mine.fullmatch(name)]


def make(places: Places, hosts: Sequence[str]) -> None:
    """Bridge, and per host a namespace with `host0`. No default route: there is no way out of a lab."""
    bridge = places.namespace()
    lines: list[str] = []
    run(["ip", "netns", "add", bridge])
    for host in hosts:
        run(["ip", "netns", "add", places.namespace(host)])
        lines += [
            f"link add v-{host} type veth peer name host0 address {mac(host)} netns {places.namespace(host)}",
            f"link set v-{host} master br0 up",
        ]
    first = [
        "link set lo up",
        "link add br0 type bridge forward_delay 0 stp_state 0",
        f"addr add {BRIDGE_ADDRESS}/24 dev br0",
    ]
    run(["ip", "-n", bridge, "-batch", "-"], stdin="\n".join([*first, "link set br0 up", *lines]) + "\n")
    for host in hosts:
        inside = f"link set lo up\naddr add {address(host)}/24 dev host0\nlink set host0 up\n"
        run(["ip", "-n", places.namespace(host), "-batch", "-"], stdin=inside)


def remove(places: Places) -> None:
    for name in namespaces(places):
        run(["ip", "netns", "del", name], check=False)


def limit(places: Places, host: str, mbit: float | None) -> None:
    """Hold a host's link to a rate, both ways; None: as fast as it goes. The host itself shapes what it sends."""
    ends = ((places.namespace(host), "host0"), (places.namespace(), f"v-{host}"))
    for namespace, link in ends:
        words = ["ip", "netns", "exec", namespace, "tc", "qdisc"]
        if mbit is None:
            run([*words, "del", "dev", link, "root"], check=False)
        else:
            rate = f"{round(mbit * 1000)}kbit"
            run([*words, "replace", "dev", link, "root", "tbf", "rate", rate, "burst", "256k", "latency", "50ms"])


def sent(places: Places, host: str) -> int:
    """Bytes that left a host, every header included: what the bridge had from it."""
    said = run(["ip", "netns", "exec", places.namespace(), "cat", f"/sys/class/net/v-{host}/statistics/rx_bytes"])
    return int(said.out)
