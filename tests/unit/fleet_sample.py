"""Nodes of a fleet that no file describes, for tests of pure functions over them."""

from bedplate.model.fleet import Node


def node(name: str, *, rack: str = "r01", groups: tuple[str, ...] = ("training",), kind: str = "gpu") -> Node:
    number = int("0" + "".join(c for c in name if c.isdigit()))
    return Node(
        name=name, serial=f"LAB-{number:04d}", boot_mac=f"02:bd:00:00:00:{number % 256:02x}", nic_macs=(),
        bmc_address=f"10.78.0.{number % 250 + 1}", address=f"10.77.0.{number % 250 + 1}", rack=rack,
        position=number % 42 + 1, groups=groups, kind=kind, partition=None,
    )  # fmt: skip


def nodes(count: int, racks: int = 2, *, reference: int = 0) -> list[Node]:
    """n1 to nCOUNT in racks in turn; the first `reference` ones are reference machines as well."""
    return [
        node(
            f"n{i:03d}", rack=f"r{i % racks:02d}", groups=("training", "reference") if i <= reference else ("training",)
        )
        for i in range(1, count + 1)
    ]
