"""Door to bedplate.doors.inventory."""

from bedplate.doors.inventory import InventoryModule

__all__ = ["InventoryModule"]

DOCUMENTATION = """
name: bedplate
short_description: The fleet of a site
description:
  - Reads C(fleet.yml) and C(nodes.csv) of a site; docs/site.md describes both.
  - Groups are those of C(fleet.yml), and C(kind_X), C(rack_X), C(partition_X).
  - C(bedplate_node) holds what the fleet knows of a node, C(bedplate_site) the directory of the site.
  - A fleet with a fault stops Ansible, with every fault and its line.
options:
  plugin:
    description: Says that the file is for this plug-in.
    required: true
    choices: [bedplate]
"""
