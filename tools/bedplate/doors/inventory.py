"""Inventory `bedplate`: the fleet of a site, as Ansible's hosts, groups and variables."""

import shlex
from pathlib import Path
from typing import Any

from ansible import constants, context
from ansible.errors import AnsibleParserError
from ansible.plugins.inventory import BaseInventoryPlugin

from bedplate.decide.limit import refusal
from bedplate.doors import site as site_door
from bedplate.model.faults import BadInput
from bedplate.model.fleet import Node
from bedplate.observe.sshargs import ssh_options
from bedplate.sources.site import Site, open_site, shown

FLEET = "fleet.yml"
PERSIST_S = 600  # a connection outlives the wait for a batch's slowest node


class InventoryModule(BaseInventoryPlugin):
    NAME = "bedplate"

    def verify_file(self, path: str) -> bool:
        if _is_fleet(path):
            return bool(super().verify_file(path))
        # Where no other plug-in is asked, nobody else can say what an inventory is: see parse.
        return list(constants.INVENTORY_ENABLED) == [self.NAME]

    def parse(self, inventory: Any, loader: Any, path: str, cache: bool = True) -> None:
        super().parse(inventory, loader, path, cache)
        if not _is_fleet(path):
            raise AnsibleParserError(no_inventory(Path(path)))
        root = Path(path).resolve().parent
        try:
            site = open_site(root)
            fleet = site.fleet
        except BadInput as fault:
            raise AnsibleParserError(f"{fault}\n{len(fault.faults)} faults, no host was read") from None
        site_door.parsed.append(root)
        for node in fleet.nodes.values():
            inventory.add_host(node.name)
            for group in groups(node):
                inventory.add_group(group)
                inventory.add_host(node.name, group=group)
        for group in fleet.groups:  # also those without nodes: a play for them is empty, not an error
            inventory.add_group(group)
        common = site_variables(site)
        for name, value in common.items():
            inventory.set_variable("all", name, value)
        for node in fleet.nodes.values():
            for name, value in node_variables(node).items():
                inventory.set_variable(node.name, name, value)
        _refuse_limit(inventory)


def _is_fleet(path: str) -> bool:
    return Path(path).name == FLEET and Path(path).is_file()


def no_inventory(path: Path) -> str:
    """What was given with -i, and what it may be."""
    found = "is not a site's fleet.yml" if path.exists() else "no such file"
    near = next((place / FLEET for place in (path, *path.parents) if (place / FLEET).is_file()), None)
    return f"{path}: {found}; the inventory is the fleet.yml of a site: -i {shown(near) if near else 'SITE/fleet.yml'}"


def _refuse_limit(inventory: Any) -> None:
    """Before Ansible applies it: what it cannot match it leaves out, and goes on with the others."""
    flags = context.CLIARGS
    if limit := flags.get("subset"):
        alone = len(flags.get("inventory") or ()) <= 1  # else other sources may have more hosts
        why = refusal(str(limit), list(inventory.hosts), list(inventory.groups), complete=alone)
        if why:
            raise AnsibleParserError(why)


def groups(node: Node) -> list[str]:
    """The groups of a node: those of fleet.yml, and one for its kind, its rack, its partition."""
    named = [*node.groups, f"kind_{node.kind}", f"rack_{node.rack}"]
    return [*named, f"partition_{node.partition}"] if node.partition else named


def site_variables(site: Site) -> dict[str, object]:
    """What is the same for all nodes of a site."""
    ssh = site.fleet.ssh
    variables: dict[str, object] = {
        "bedplate_site": str(site.root),
        "ansible_user": ssh.user,
        "ansible_port": ssh.port,
        "ansible_ssh_private_key_file": str(site.identity_path),
        "ansible_ssh_args": f"-o ControlMaster=auto -o ControlPersist={PERSIST_S}s",
        "ansible_ssh_common_args": shlex.join(ssh_options(site)),
        # The system's own: no node gets another one, and discovery costs a round trip per node.
        "ansible_python_interpreter": "/usr/bin/python3",
    }
    if site.fleet.example:
        variables["ansible_connection"] = "bedplate_refused"
    return variables


def node_variables(node: Node) -> dict[str, object]:
    """What the fleet knows of a node, as plain data."""
    return {
        "ansible_host": node.address,
        "bedplate_node": {
            "name": node.name,
            "serial": node.serial,
            "address": node.address,
            "bmc_address": node.bmc_address,
            "boot_mac": node.boot_mac,
            "nic_macs": list(node.nic_macs),
            "rack": node.rack,
            "position": node.position,
            "groups": list(node.groups),
            "kind": node.kind,
            "partition": node.partition,
        },
    }
